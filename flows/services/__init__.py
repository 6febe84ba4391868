"""The embedded services: what a run needs on one machine, started and stopped by `hetrl up` and `hetrl down`."""

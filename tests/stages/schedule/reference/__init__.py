"""The cost model a second time: slow, plain, and written from the formulas, for the compiled kernel to agree with.

``iteration.price`` takes a problem and the layouts of every group, and returns seconds by task and term, bytes by device and term, and
what is lacking. It prices what it is given; it lays nothing out and balances nothing.
"""

"""A single-node Ceph RGW (mon, osd, rgw; no mgr) for tests, where Debian's ceph-mon, ceph-osd and radosgw are installed."""

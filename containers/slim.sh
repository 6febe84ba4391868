#!/bin/sh
# Takes out of an environment what nothing of ours uses at run time: sh slim.sh /opt/hetrl. In the step that installs, so that no layer holds it.
set -eu
cd "$1"/lib/python3*/site-packages
find . -type d -name tests -prune -exec rm -r {} +
# botocore describes every service of AWS: needed are S3 and the ways to sign in to it.
find botocore/data -mindepth 1 -maxdepth 1 -type d ! -name s3 ! -name sts ! -name sso ! -name sso-oidc ! -name signin -exec rm -r {} +
# matplotlib asks fontTools for the names of glyphs; the rest embeds fonts in PDF and PostScript, and reports are SVG.
find fontTools -mindepth 1 -maxdepth 1 -type d ! -name misc ! -name __pycache__ -exec rm -r {} +
# PuLP brings a solver for every platform; it is asked only where HiGHS is not there.
rm -rf pulp/solverdir/cbc

"""What makes a release, and checks it: `make wheels`, `make release-check`.

wheels.py    a wheel for each platform, each checked by its name, its tag and its contents
shipped.py   which packages users install with it, in the versions that were tested here
checks.py    SBOM, dependency audit, licences
"""

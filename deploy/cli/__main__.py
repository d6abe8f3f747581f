"""`python -m deploy.cli`: the same as `teacup`."""

from deploy.cli.command import main

main()

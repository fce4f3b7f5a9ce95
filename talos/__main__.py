import sys

from talos.cli.main import main

sys.exit(main())

"""In place of the package where a file of orders is run (__main__.py); its other modules are the package's."""

import os

_HERE = os.path.dirname(os.path.abspath(__file__))
__path__.append(os.path.realpath(os.path.join(_HERE, "..", "..", "..", "tools", "python", "starling")))

# SPDX-License-Identifier: Apache-2.0
"""msgspec, which Spack does not have."""

from spack.package import depends_on, license, version
from spack_repo.builtin.build_systems.python import PythonPackage


class PyMsgspec(PythonPackage):
    """Serialization and validation by the types of Python."""

    homepage = "https://jcristharif.com/msgspec/"
    pypi = "msgspec/msgspec-0.20.0.tar.gz"

    license("BSD-3-Clause")

    version("0.20.0", sha256="692349e588fde322875f8d3025ac01689fead5901e7fb18d6870a44519d62a29")

    depends_on("c", type="build")
    depends_on("python@3.9:", type=("build", "run"))
    depends_on("py-setuptools@80:", type="build")
    depends_on("py-setuptools-scm@8:", type="build")

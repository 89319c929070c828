# SPDX-License-Identifier: Apache-2.0
"""dgkit for Spack, from a clone."""

from spack.package import depends_on, license, version
from spack_repo.builtin.build_systems.python import PythonPackage


class PyDgkit(PythonPackage):
    """DMA between a BlueField DPU and the memory of a GPU's host, from a notebook."""

    license("Apache-2.0")

    version("0.2.0")

    depends_on("c", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("py-scikit-build-core@0.10:", type="build")

    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-cffi@1.17:", type=("build", "run"))
    depends_on("py-click@8.1:", type="run")
    depends_on("py-msgspec@0.19:", type="run")
    depends_on("py-numpy@1.24:", type="run")
    depends_on("py-pyzmq@26:", type="run")
    depends_on("py-rich@13.7:", type="run")

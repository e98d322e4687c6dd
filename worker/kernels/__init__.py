"""CPU kernels in C++ behind a plain C interface; built with the package where there is a compiler."""

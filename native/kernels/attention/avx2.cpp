// The attention family at the avx2 tier: this file only chooses the lanes that the shared body is compiled over.
#include "kernels/simd/avx2.h"

#include "kernels/attention/body.h"

// The pointwise family at the avx512 tier: this file only chooses the lanes that the shared body is compiled over.
#include "kernels/simd/avx512.h"

#include "kernels/pointwise/body.h"

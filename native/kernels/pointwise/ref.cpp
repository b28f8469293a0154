// The pointwise family at the ref tier: this file only chooses the lanes that the shared body is compiled over.
#include "kernels/simd/ref.h"

#include "kernels/pointwise/body.h"

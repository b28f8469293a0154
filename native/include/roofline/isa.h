// The four tiers of kernels. A tier is a bundle of CPU features that its translation units may use.
#pragma once

namespace roofline {

enum class Isa : int {
  ref = 0,     // plain C++, any machine
  avx2 = 1,    // AVX2 + FMA + F16C + BMI2
  avx512 = 2,  // AVX-512 F, BW, VL, DQ, VNNI
  amx = 3,     // avx512 + AMX tile, int8
};

}  // namespace roofline

#include "runtime/cpu_features.h"

#include <cerrno>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace roofline {
namespace {

struct CpuidLeaves {
  uint32_t ecx_1 = 0, ebx_7 = 0, ecx_7 = 0, edx_7 = 0, eax_7_1 = 0;
  uint64_t xcr0 = 0;
};

#if defined(__x86_64__)
uint64_t read_xcr0() {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

CpuidLeaves read_leaves() {
  CpuidLeaves leaves;
  uint32_t eax, ebx, ecx, edx;
  if (__get_cpuid_count(1, 0, &eax, &ebx, &ecx, &edx)) leaves.ecx_1 = ecx;
  uint32_t last_subleaf = 0;
  if (__get_cpuid_count(7, 0, &last_subleaf, &ebx, &ecx, &edx)) {
    leaves.ebx_7 = ebx;
    leaves.ecx_7 = ecx;
    leaves.edx_7 = edx;
  }
  if (last_subleaf >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) leaves.eax_7_1 = eax;
  constexpr uint32_t kOsxsave = 1u << 27;   // without it xgetbv itself faults
  if (leaves.ecx_1 & kOsxsave) leaves.xcr0 = read_xcr0();
  return leaves;
}
#else
CpuidLeaves read_leaves() { return {}; }
#endif

std::vector<CpuFeature> probe_features() {
  const CpuidLeaves leaves = read_leaves();
  const auto saved = [&](uint64_t mask) { return (leaves.xcr0 & mask) == mask; };
  const bool ymm = saved(0x6), zmm = saved(0xe6), tiles = saved(0x60000);
  const auto bit = [](uint32_t word, int index) { return ((word >> index) & 1u) != 0; };
  return {
      {"avx", ymm && bit(leaves.ecx_1, 28)},
      {"fma", ymm && bit(leaves.ecx_1, 12)},
      {"f16c", ymm && bit(leaves.ecx_1, 29)},
      {"bmi1", bit(leaves.ebx_7, 3)},
      {"bmi2", bit(leaves.ebx_7, 8)},
      {"avx2", ymm && bit(leaves.ebx_7, 5)},
      {"avx_vnni", ymm && bit(leaves.eax_7_1, 4)},
      {"avx512f", zmm && bit(leaves.ebx_7, 16)},
      {"avx512dq", zmm && bit(leaves.ebx_7, 17)},
      {"avx512bw", zmm && bit(leaves.ebx_7, 30)},
      {"avx512vl", zmm && bit(leaves.ebx_7, 31)},
      {"avx512vbmi", zmm && bit(leaves.ecx_7, 1)},
      {"avx512_vnni", zmm && bit(leaves.ecx_7, 11)},
      {"avx512_bf16", zmm && bit(leaves.eax_7_1, 5)},
      {"avx512_fp16", zmm && bit(leaves.edx_7, 23)},
      {"amx_tile", tiles && bit(leaves.edx_7, 24)},
      {"amx_int8", tiles && bit(leaves.edx_7, 25)},
      {"amx_bf16", tiles && bit(leaves.edx_7, 22)},
  };
}

bool usable(const std::string& name) {
  for (const CpuFeature& feature : cpu_features())
    if (name == feature.name) return feature.usable;
  return false;
}

std::vector<std::string> required_flags(Isa isa) {
  std::vector<std::string> flags;
  if (isa >= Isa::avx2) flags.insert(flags.end(), {"avx", "avx2", "fma", "f16c", "bmi1", "bmi2"});
  if (isa >= Isa::avx512) flags.insert(flags.end(), {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"});
  if (isa >= Isa::amx) flags.insert(flags.end(), {"amx_tile", "amx_int8"});
  return flags;
}

bool built(Isa isa) {
  switch (isa) {
    case Isa::ref: return true;
#ifdef ROOFLINE_HAS_AVX2
    case Isa::avx2: return true;
#endif
#ifdef ROOFLINE_HAS_AVX512
    case Isa::avx512: return true;
#endif
#ifdef ROOFLINE_HAS_AMX
    case Isa::amx: return true;
#endif
    default: return false;
  }
}

// Linux keeps tile data off until a process asks (arch_prctl ARCH_REQ_XCOMP_PERM for XFEATURE_XTILEDATA). Returns 0 or errno.
int request_tile_permission() {
#if defined(__linux__) && defined(__x86_64__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 0 : errno;
#else
  return ENOSYS;
#endif
}

}  // namespace

const std::vector<CpuFeature>& cpu_features() {
  static const std::vector<CpuFeature> features = probe_features();
  return features;
}

std::vector<std::string> isa_gaps(Isa isa) {
  std::vector<std::string> gaps;
  for (const std::string& flag : required_flags(isa))
    if (!usable(flag)) gaps.push_back(flag);
  if (!built(isa)) gaps.push_back("not built");
  if (isa != Isa::amx || !gaps.empty()) return gaps;
  static const int refusal = request_tile_permission();
  if (refusal != 0) gaps.push_back(std::string("permission for AMX tiles: ") + std::strerror(refusal));
  return gaps;
}

Isa best_isa() {
  for (Isa isa : {Isa::amx, Isa::avx512, Isa::avx2})
    if (isa_gaps(isa).empty()) return isa;
  return Isa::ref;
}

const char* isa_name(Isa isa) {
  constexpr const char* kNames[] = {"ref", "avx2", "avx512", "amx"};
  return kNames[static_cast<int>(isa)];
}

bool parse_isa(const std::string& name, Isa* isa) {
  for (Isa candidate : {Isa::ref, Isa::avx2, Isa::avx512, Isa::amx}) {
    if (name == isa_name(candidate)) {
      *isa = candidate;
      return true;
    }
  }
  return false;
}

}  // namespace roofline

// What this machine can run: CPUID, the register state that the operating system saves (XCR0) and the Linux permission for AMX.
// Compiled without ISA flags, so that it runs on any machine; on other architectures than x86-64 every feature is false.
#pragma once

#include <string>
#include <vector>

#include "roofline/isa.h"

namespace roofline {

struct CpuFeature {
  const char* name;    // as /proc/cpuinfo spells it, e.g. "avx512_vnni"
  bool usable;         // the CPU has it and the operating system saves its registers
};

// Probed once; the same list and order on every machine.
const std::vector<CpuFeature>& cpu_features();

// What keeps `isa` from running here: missing CPU flags, "not built", or the refused AMX permission. Empty: it runs.
// For Isa::amx, when nothing else is missing, this asks the kernel for the tile state of the whole process (once).
std::vector<std::string> isa_gaps(Isa isa);

Isa best_isa();                                          // highest tier without gaps
const char* isa_name(Isa isa);
bool parse_isa(const std::string& name, Isa* isa);       // false: no such tier

}  // namespace roofline

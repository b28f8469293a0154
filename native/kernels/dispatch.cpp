#include "kernels/dispatch.h"

namespace roofline {

KernelTable kernel_table(Isa isa) {
  KernelTable table{};
  table.linear = &linear_kernels(isa, &table.linear_isa);
  table.pointwise = &pointwise_kernels(isa, &table.pointwise_isa);
  table.attention = &attention_kernels(isa, &table.attention_isa);
  return table;
}

}  // namespace roofline

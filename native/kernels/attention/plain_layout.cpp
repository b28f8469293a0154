#include "kernels/attention/contract.h"

namespace roofline {

int64_t kv_head_bytes(KvType type, int64_t head_size) {
  const int64_t element_bytes = type == KvType::f32 ? 4 : 2;
  const int64_t padded = (head_size + kLanes - 1) / kLanes * kLanes;
  return kBlockLen * (head_size + padded) * element_bytes;
}

int64_t attention_partial_floats(int64_t rows, int64_t head_size) {
  const int64_t padded = (head_size + kLanes - 1) / kLanes * kLanes;
  return rows * (padded + 2);
}

int64_t attention_scratch_bytes(int64_t max_rows, int64_t head_size) {
  const int64_t query = max_rows * head_size;
  const int64_t scores = max_rows * (kChunkLen + kLanes);
  const int64_t partials = 2 * attention_partial_floats(max_rows, head_size);
  const int64_t alignment = 4 * kLanes;
  return (query + scores + partials + alignment) * static_cast<int64_t>(sizeof(float));
}

}  // namespace roofline

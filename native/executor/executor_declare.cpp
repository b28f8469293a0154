// Declarations of the executor: buffers, vectors, weights, tables, KV layers.
#include <stdexcept>

#include "executor/executor.h"

namespace roofline {
namespace {

constexpr int64_t kMaxDimension = int64_t{1} << 31;    // keeps every product of two below int64

void require(bool holds, const std::string& what) {
  if (!holds) throw std::invalid_argument(what);
}

void require_size(const char* what, int64_t size) {
  require(size > 0 && size < kMaxDimension, std::string(what) + " is " + std::to_string(size) + ", not in [1, 2^31)");
}

void require_equal(const char* what, int id, int64_t size, int64_t wanted) {
  if (size == wanted) return;
  throw std::invalid_argument(what + std::to_string(id) + " is " + std::to_string(size) + ", not " + std::to_string(wanted));
}

template <class T>
int keep(std::vector<std::unique_ptr<T>>* items, T item) {
  items->push_back(std::make_unique<T>(std::move(item)));
  return static_cast<int>(items->size()) - 1;
}

}  // namespace

Executor::Executor(ExecutorLimits limits) : limits_(limits), kernels_(kernel_table(limits.isa)) {
  require_size("threads", limits.num_threads);
  require(limits.num_threads <= 1024, "threads is " + std::to_string(limits.num_threads) + ", more than the limit of 1024");
  require_size("max_tokens_per_step", limits.max_tokens);
  require_size("max_context", limits.max_context);
  require_size("num_blocks", limits.num_blocks);
  require_size("vocab_size", limits.vocab_size);
}

void Executor::refuse_id(const char* what, int id, size_t count) {
  throw std::invalid_argument("there is no " + std::string(what) + " " + std::to_string(id) + " among " + std::to_string(count));
}

void Executor::require_open() const { require(pool_ == nullptr, "the executor is committed: it takes no more declarations"); }

int Executor::add_floats(int64_t width, int64_t rows_per_token) {
  require_open();
  require_size("width", width);
  require_size("rows_per_token", rows_per_token);
  return keep(&floats_, FloatBuffer(width, limits_.max_tokens * rows_per_token));
}

int Executor::add_quantized(int64_t width, int64_t rows_per_token) {
  require_open();
  require_size("width", width);
  require_size("rows_per_token", rows_per_token);
  require(width % kGroupLen == 0, "a quantized row of width " + std::to_string(width) + " isn't a multiple of 32");
  return keep(&quants_, QuantBuffer(width, limits_.max_tokens * rows_per_token));
}

int Executor::add_vector(const float* values, int64_t len) {
  require_open();
  require_size("vector length", len);
  return keep(&vectors_, std::vector<float>(values, values + len));
}

int Executor::add_weight(const std::string& scheme, int64_t num_rows, int64_t row_len) {
  require_open();
  require_size("rows of a weight", num_rows);
  require_size("row length of a weight", row_len);
  require(row_len <= kMaxRowLen, "a weight has rows of " + std::to_string(row_len) + " elements; the kernels take at most " +
                                     std::to_string(kMaxRowLen));
  const Format format = packed_format(scheme.c_str());
  scheme_row_bytes(scheme.c_str(), row_len);           // throws when the row is not whole blocks
  Weight weight;
  weight.scheme = scheme;
  weight.packed = {format, num_rows, row_len, nullptr, packed_block_bytes(format, row_len), packed_lut(scheme.c_str())};
  return keep(&weights_, std::move(weight));
}

int Executor::add_embedding(const std::string& scheme, const uint8_t* rows, int64_t num_rows, int64_t row_len) {
  require_open();
  require(num_rows >= limits_.vocab_size, "the embedding has " + std::to_string(num_rows) + " rows, fewer than the vocabulary");
  require_size("row length of the embedding", row_len);
  return keep(&embeddings_, EmbeddingSource{scheme, rows, scheme_row_bytes(scheme.c_str(), row_len), row_len});
}

int Executor::add_rope(const float* cos, const float* sin, int64_t num_positions, int64_t half_len, RopeStyle style) {
  require_open();
  require(num_positions >= limits_.max_context, "the rope table is shorter than max_context");
  require_size("rope pairs", half_len);
  const int64_t len = num_positions * half_len;
  return keep(&ropes_, RopeTable{{cos, cos + len}, {sin, sin + len}, half_len, style});
}

int Executor::add_kv_layer(int64_t num_kv_heads, int64_t head_size) {
  require_open();
  require_size("KV heads", num_kv_heads);
  require_size("head size", head_size);
  require(head_size % 2 == 0, "head size " + std::to_string(head_size) + " isn't even");
  const int64_t block_bytes = num_kv_heads * kv_head_bytes(limits_.kv_type, head_size);
  return keep(&kv_layers_, KvCache{nullptr, block_bytes, limits_.kv_type, num_kv_heads, head_size});
}

int Executor::add_moe(MoeShape shape) {
  require_open();
  require_size("experts", shape.num_experts);
  require_size("expert length", shape.expert_len);
  require_size("width", shape.width);
  require(shape.top_k > 0 && shape.top_k <= shape.num_experts, "top_k " + std::to_string(shape.top_k) + " isn't in [1, experts]");
  return keep(&moes_, MoeState(shape, limits_.max_tokens));
}

FloatBuffer& Executor::floats(int id, int64_t width) const {
  FloatBuffer& buffer = floats(id);
  require_equal("the width of float buffer ", id, buffer.width, width);
  return buffer;
}

QuantBuffer& Executor::quants(int id, int64_t width) const {
  QuantBuffer& buffer = quants(id);
  require_equal("the width of quantized buffer ", id, buffer.width, width);
  return buffer;
}

const float* Executor::vector(int id, int64_t len) const {
  const std::vector<float>& values = at(vectors_, id, "vector");
  require_equal("the length of vector ", id, static_cast<int64_t>(values.size()), len);
  return values.data();
}

LinearInput Executor::linear_input(InputSpec spec, const Weight& weight) const {
  LinearInput input;
  if (reads_floats(weight.packed.format)) {
    input.floats = &floats(spec.floats, weight.packed.row_len);
  } else {
    input.quantized = &quants(spec.quantized, weight.packed.row_len);
  }
  return input;
}

GatedOutput Executor::gated_output(InputSpec spec, int64_t width) const {
  GatedOutput out;
  require(spec.floats >= 0 || spec.quantized >= 0, "a gated phase needs an output");
  if (spec.floats >= 0) out.floats = &floats(spec.floats, width);
  if (spec.quantized >= 0) out.quantized = &quants(spec.quantized, width);
  return out;
}

AttentionSchedule* Executor::schedule(AttentionGeometry geometry) {
  for (const auto& known : schedules_) {
    if (known->geometry() == geometry) return known.get();
  }
  schedules_.push_back(std::make_unique<AttentionSchedule>(geometry, limits_.num_threads, limits_.max_tokens, limits_.max_context));
  return schedules_.back().get();
}

}  // namespace roofline

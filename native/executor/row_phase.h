// Row phases: chains of operators that work on one row at a time (embedding, norms, rope, KV append, quantization, ...). Rows are
// shared out among the threads, and a row runs through the whole chain while it is in cache.
#pragma once

#include <memory>
#include <vector>

#include "executor/buffers.h"
#include "executor/phase.h"

namespace roofline {

class RowOp {
 public:
  virtual ~RowOp() = default;
  virtual void run(const Step& step, int64_t row) const = 0;
};

enum class RowSpace { tokens, logit_rows };

class RowPhase : public Phase {
 public:
  RowPhase(std::string name, RowSpace space, int num_threads)
      : Phase(std::move(name)), space_(space), homes_(static_cast<size_t>(num_threads) + 1) {}
  void add(std::unique_ptr<RowOp> op) { ops_.push_back(std::move(op)); }
  // One row: norm and quantize take about a microsecond, five times a barrier.
  bool is_serial(const Step& step) const override { return num_rows(step) <= 1; }
  void prepare(const Step& step) override;
  const Homes& homes(const Step&) const override { return homes_; }
  void run_chunk(const Step& step, const Lane& lane, int64_t chunk) override;

 private:
  int64_t num_rows(const Step& step) const {
    return space_ == RowSpace::tokens ? step.input.num_tokens : step.input.num_logit_rows;
  }

  RowSpace space_;
  Homes homes_;
  std::vector<std::unique_ptr<RowOp>> ops_;
};

struct EmbeddingSource {
  std::string scheme;       // of the file's rows
  const uint8_t* rows;      // [V, row_bytes], mapped; the owner of the executor keeps it alive
  int64_t row_bytes, row_len;
};

struct RopeTable {
  std::vector<float> cos, sin;   // [num_positions, half_len]
  int64_t half_len;
  RopeStyle style;
};

struct EmbedOp final : RowOp {
  const PointwiseKernels& kernels;
  const EmbeddingSource& source;
  const FloatBuffer& out;
  float scale;
  EmbedOp(const PointwiseKernels& kernels, const EmbeddingSource& source, const FloatBuffer& out, float scale)
      : kernels(kernels), source(source), out(out), scale(scale) {}
  void run(const Step& step, int64_t row) const override;
};

// Row `logit_rows[l]` of x to row l of out.
struct GatherOp final : RowOp {
  const FloatBuffer &x, &out;
  GatherOp(const FloatBuffer& x, const FloatBuffer& out) : x(x), out(out) {}
  void run(const Step& step, int64_t row) const override;
};

struct NormOp final : RowOp {
  const PointwiseKernels& kernels;
  const FloatBuffer &x, &out;
  const float* weight;
  float eps;
  int64_t num_groups, group_len;
  NormOp(const PointwiseKernels& kernels, const FloatBuffer& x, const FloatBuffer& out, const float* weight, float eps,
         int64_t num_groups, int64_t group_len)
      : kernels(kernels), x(x), out(out), weight(weight), eps(eps), num_groups(num_groups), group_len(group_len) {}
  void run(const Step& step, int64_t row) const override;
};

struct QuantizeOp final : RowOp {
  const PointwiseKernels& kernels;
  const FloatBuffer& x;
  const QuantBuffer& out;
  QuantizeOp(const PointwiseKernels& kernels, const FloatBuffer& x, const QuantBuffer& out) : kernels(kernels), x(x), out(out) {}
  void run(const Step& step, int64_t row) const override;
};

struct RopeOp final : RowOp {
  const PointwiseKernels& kernels;
  const FloatBuffer& x;
  const RopeTable& table;
  int64_t num_heads, head_size;
  RopeOp(const PointwiseKernels& kernels, const FloatBuffer& x, const RopeTable& table, int64_t num_heads, int64_t head_size)
      : kernels(kernels), x(x), table(table), num_heads(num_heads), head_size(head_size) {}
  void run(const Step& step, int64_t row) const override;
};

struct AppendOp final : RowOp {
  const AttentionKernels& kernels;
  const KvCache& cache;
  const FloatBuffer &k, &v;
  AppendOp(const AttentionKernels& kernels, const KvCache& cache, const FloatBuffer& k, const FloatBuffer& v)
      : kernels(kernels), cache(cache), k(k), v(v) {}
  void run(const Step& step, int64_t row) const override;
};

struct AddOp final : RowOp {
  const PointwiseKernels& kernels;
  const FloatBuffer &a, &b, &out;
  AddOp(const PointwiseKernels& kernels, const FloatBuffer& a, const FloatBuffer& b, const FloatBuffer& out)
      : kernels(kernels), a(a), b(b), out(out) {}
  void run(const Step& step, int64_t row) const override;
};

struct GatedActOp final : RowOp {
  const PointwiseKernels& kernels;
  const FloatBuffer &gate, &up, &out;
  Activation act;
  GatedActOp(const PointwiseKernels& kernels, const FloatBuffer& gate, const FloatBuffer& up, const FloatBuffer& out, Activation act)
      : kernels(kernels), gate(gate), up(up), out(out), act(act) {}
  void run(const Step& step, int64_t row) const override;
};

// out = x * sigmoid(gate[0]).
struct SigmoidGateOp final : RowOp {
  const PointwiseKernels& kernels;
  const FloatBuffer &x, &gate, &out;
  SigmoidGateOp(const PointwiseKernels& kernels, const FloatBuffer& x, const FloatBuffer& gate, const FloatBuffer& out)
      : kernels(kernels), x(x), gate(gate), out(out) {}
  void run(const Step& step, int64_t row) const override;
};

}  // namespace roofline

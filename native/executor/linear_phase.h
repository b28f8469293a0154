// Linear phases: matrix products over packed weights, shared out by row blocks (block_plan.h). Three kinds: several weights over the
// same input (q, k, v), gate and up with the activation between them and the next product, and the logits.
#pragma once

#include <vector>

#include "executor/block_plan.h"
#include "executor/buffers.h"
#include "executor/phase.h"

namespace roofline {

inline bool reads_floats(Format format) { return format <= Format::bf16; }

// A weight of the executor: packed bytes (placed by commit) and how its blocks are first touched.
struct Weight {
  std::string scheme;
  PackedWeight packed;
  std::vector<BlockRange> home;     // [threads], from the phase that reads it
};

// What a linear reads: quantized rows or float rows, whichever its weight's format wants.
struct LinearInput {
  const FloatBuffer* floats = nullptr;
  const QuantBuffer* quantized = nullptr;
  void fill(Format format, int64_t first_row, LinearArgs* args) const;
};

// A phase whose work is a range of row blocks.
class BlockPhase : public Phase {
 public:
  BlockPhase(std::string name, const LinearKernels& kernels) : Phase(std::move(name)), kernels_(kernels) {}
  bool is_serial(const Step& step) const override { return num_rows(step) == 0; }
  const Homes& homes(const Step& step) const override { return plan_of(step).homes; }
  void run_chunk(const Step& step, const Lane& lane, int64_t chunk) override;

 protected:
  virtual int64_t num_rows(const Step& step) const { return step.input.num_tokens; }
  virtual void run_blocks(const Step& step, const Lane& lane, BlockRange blocks) = 0;
  void plan(const std::vector<int64_t>& costs, int num_threads, int64_t align);

  const LinearKernels& kernels_;
  BlockPlan narrow_, wide_;         // few rows: bound by memory, long streams; many rows: bound by arithmetic, small chunks

 private:
  const BlockPlan& plan_of(const Step& step) const;
};

struct LinearItem {
  Weight* weight;
  const float* bias;                // [N] or null
  const FloatBuffer* out;
  bool accumulate;
};

class LinearPhase final : public BlockPhase {
 public:
  LinearPhase(std::string name, const LinearKernels& kernels, LinearInput input, std::vector<LinearItem> items, int num_threads);

 protected:
  void run_blocks(const Step& step, const Lane& lane, BlockRange blocks) override;

 private:
  LinearInput input_;
  std::vector<LinearItem> items_;
  std::vector<int64_t> first_block_;    // of each item in the phase's numbering, and the end
};

// Where gate and up meet: out = act(gate . x) * up . x, as floats or quantized for the next product.
struct GatedOutput {
  const FloatBuffer* floats = nullptr;
  const QuantBuffer* quantized = nullptr;
};

struct GatedWeights {
  const Weight *gate, *up;
};

inline constexpr int64_t kGatedAlign = 4;            // row blocks: 64 columns, the unit of QuantizedRows padding
// Gate and up columns of a thread on their way to the activation: sixteen blocks of each for 512 rows, half of a 2 MB L2.
inline constexpr int64_t kColumnScratchLen = 512 * 2 * 16 * kRowBlock;

// One range of row blocks of gate, up, activation and quantization; shared by dense layers and experts.
struct GatedColumns {
  const LinearKernels& linear;
  const PointwiseKernels& pointwise;
  GatedWeights weights;
  Activation act;
  LinearInput input;
  const int32_t* row_ids = nullptr;
  GatedOutput out{};
  int64_t first_out_row = 0;
  int64_t num_rows = 0;

  void run(const Lane& lane, BlockRange blocks) const;

 private:
  void run_chunk(const Lane& lane, int64_t first_row, int64_t rows, BlockRange blocks) const;
  void finish_row(float* gate, const float* up, int64_t row, int64_t column, int64_t len) const;
};

class GatedPhase final : public BlockPhase {
 public:
  GatedPhase(std::string name, GatedColumns columns, Weight* gate, Weight* up, int num_threads);

 protected:
  void run_blocks(const Step& step, const Lane& lane, BlockRange blocks) override;

 private:
  GatedColumns columns_;
};

// Logits of the logit rows, straight into the caller's array, scaled and soft-capped.
class LogitsPhase final : public BlockPhase {
 public:
  LogitsPhase(std::string name, const KernelTable& kernels, LinearInput input, Weight* weight, float scale, float soft_cap,
              int num_threads);

 protected:
  int64_t num_rows(const Step& step) const override { return step.input.num_logit_rows; }
  void run_blocks(const Step& step, const Lane& lane, BlockRange blocks) override;

 private:
  const PointwiseKernels& pointwise_;
  LinearInput input_;
  const Weight* weight_;
  float scale_, soft_cap_;
};

}  // namespace roofline

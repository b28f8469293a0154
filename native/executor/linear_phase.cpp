#include "executor/linear_phase.h"

#include <algorithm>

namespace roofline {
namespace {

constexpr int64_t kWideRows = 16;                    // from here a product is bound by arithmetic
constexpr int64_t kGatedRows = 512;                  // rows of gate and up at a time
constexpr ChunkShape kNarrow{8, 64, 4};               // eight blocks keep eight streams in flight
constexpr ChunkShape kWide{8, 32, 4};                 // MEASURED four blocks: 1.6 times the time of eight at 32 rows

int64_t num_blocks(const PackedWeight& weight) { return (weight.num_rows + kRowBlock - 1) / kRowBlock; }

void append_costs(const PackedWeight& weight, std::vector<int64_t>* costs) {
  costs->insert(costs->end(), static_cast<size_t>(num_blocks(weight)), weight.block_stride_bytes);
}

// The part of each thread's home that lies in [first, end), as block numbers of that weight.
std::vector<BlockRange> clip_home(const std::vector<BlockRange>& home, int64_t first, int64_t end) {
  std::vector<BlockRange> clipped;
  for (const BlockRange& range : home) {
    clipped.push_back({std::clamp(range.begin, first, end) - first, std::clamp(range.end, first, end) - first});
  }
  return clipped;
}

}  // namespace

void LinearInput::fill(Format format, int64_t first_row, LinearArgs* args) const {
  if (reads_floats(format)) {
    args->floats = {floats->row(first_row), floats->stride};
  } else {
    args->quantized = quantized->view(first_row);
  }
}

void BlockPhase::plan(const std::vector<int64_t>& costs, int num_threads, int64_t align) {
  narrow_ = plan_blocks(costs, num_threads, align, kNarrow);
  wide_ = plan_blocks(costs, num_threads, align, kWide);
}

const BlockPlan& BlockPhase::plan_of(const Step& step) const { return num_rows(step) < kWideRows ? narrow_ : wide_; }

void BlockPhase::run_chunk(const Step& step, const Lane& lane, int64_t chunk) {
  if (num_rows(step) > 0) run_blocks(step, lane, plan_of(step).chunks[static_cast<size_t>(chunk)]);
}

LinearPhase::LinearPhase(std::string name, const LinearKernels& kernels, LinearInput input, std::vector<LinearItem> items,
                         int num_threads)
    : BlockPhase(std::move(name), kernels), input_(input), items_(std::move(items)) {
  std::vector<int64_t> costs;
  for (const LinearItem& item : items_) {
    first_block_.push_back(static_cast<int64_t>(costs.size()));
    append_costs(item.weight->packed, &costs);
  }
  first_block_.push_back(static_cast<int64_t>(costs.size()));
  plan(costs, num_threads, 1);
  for (size_t i = 0; i < items_.size(); ++i) {
    items_[i].weight->home = clip_home(narrow_.ranges, first_block_[i], first_block_[i + 1]);
  }
}

void LinearPhase::run_blocks(const Step& step, const Lane& lane, BlockRange blocks) {
  for (size_t i = 0; i < items_.size(); ++i) {
    const int64_t begin = std::max(blocks.begin, first_block_[i]), end = std::min(blocks.end, first_block_[i + 1]);
    if (begin >= end) continue;
    const LinearItem& item = items_[i];
    LinearArgs args{};
    args.weight = &item.weight->packed;
    input_.fill(args.weight->format, 0, &args);
    args.num_tokens = step.input.num_tokens;
    args.y = item.out->data;
    args.y_stride = item.out->stride;
    args.bias = item.bias;
    args.accumulate = item.accumulate;
    args.block_begin = begin - first_block_[i];
    args.block_end = end - first_block_[i];
    args.scratch = lane.linear;
    kernels_.linear(args);
  }
}

// The scratch holds as many columns as fit for this number of rows, so that one row goes through in a single call.
void GatedColumns::run(const Lane& lane, BlockRange blocks) const {
  for (int64_t row = 0; row < num_rows; row += kGatedRows) {
    const int64_t rows = std::min(kGatedRows, num_rows - row);
    const int64_t most = kColumnScratchLen / (2 * kRowBlock * rows) / kGatedAlign * kGatedAlign;
    for (int64_t at = blocks.begin; at < blocks.end; at += most) run_chunk(lane, row, rows, {at, std::min(at + most, blocks.end)});
  }
}

void GatedColumns::run_chunk(const Lane& lane, int64_t first_row, int64_t rows, BlockRange blocks) const {
  const int64_t column = blocks.begin * kRowBlock;
  const int64_t stride = (blocks.end - blocks.begin) * kRowBlock;
  float* gate = lane.columns;
  float* up = lane.columns + rows * stride;
  LinearArgs args{};
  if (row_ids != nullptr) args.row_ids = row_ids + first_row;
  args.num_tokens = rows;
  args.y_stride = stride;
  args.scratch = lane.linear;
  args.block_end = blocks.end - blocks.begin;
  for (const bool is_gate : {true, false}) {
    // A view of the weight that starts at this range, so that its first column is column 0 of the scratch.
    PackedWeight view = (is_gate ? weights.gate : weights.up)->packed;
    view.tiles += blocks.begin * view.block_stride_bytes;
    view.num_rows -= column;
    args.weight = &view;
    input.fill(view.format, row_ids != nullptr ? 0 : first_row, &args);
    args.y = is_gate ? gate : up;
    linear.linear(args);
  }
  const int64_t len = std::min(stride, weights.gate->packed.num_rows - column);
  for (int64_t row = 0; row < rows; ++row) finish_row(gate + row * stride, up + row * stride, first_row + row, column, len);
}

void GatedColumns::finish_row(float* gate, const float* up, int64_t row, int64_t column, int64_t len) const {
  const int64_t out_row = first_out_row + row;
  float* y = out.floats != nullptr ? out.floats->row(out_row) + column : gate;
  pointwise.gated_act(gate, up, act, len, y);
  if (out.quantized == nullptr) return;
  const QuantBuffer::Target to = out.quantized->target(out_row, column);
  pointwise.quantize(y, len, to.q, to.scale, to.sum16);
}

GatedPhase::GatedPhase(std::string name, GatedColumns columns, Weight* gate, Weight* up, int num_threads)
    : BlockPhase(std::move(name), columns.linear), columns_(columns) {
  std::vector<int64_t> costs;
  append_costs(gate->packed, &costs);
  plan(costs, num_threads, kGatedAlign);
  gate->home = up->home = narrow_.ranges;
}

void GatedPhase::run_blocks(const Step& step, const Lane& lane, BlockRange blocks) {
  GatedColumns columns = columns_;
  columns.num_rows = step.input.num_tokens;
  columns.run(lane, blocks);
}

LogitsPhase::LogitsPhase(std::string name, const KernelTable& kernels, LinearInput input, Weight* weight, float scale,
                         float soft_cap, int num_threads)
    : BlockPhase(std::move(name), *kernels.linear), pointwise_(*kernels.pointwise), input_(input), weight_(weight), scale_(scale),
      soft_cap_(soft_cap) {
  std::vector<int64_t> costs;
  append_costs(weight->packed, &costs);
  plan(costs, num_threads, 1);
  weight->home = narrow_.ranges;
}

void LogitsPhase::run_blocks(const Step& step, const Lane& lane, BlockRange blocks) {
  const PackedWeight& weight = weight_->packed;
  LinearArgs args{};
  args.weight = &weight;
  input_.fill(weight.format, 0, &args);
  args.num_tokens = step.input.num_logit_rows;
  args.y = step.input.logits;
  args.y_stride = weight.num_rows;
  args.block_begin = blocks.begin;
  args.block_end = blocks.end;
  args.scratch = lane.linear;
  kernels_.linear(args);
  const int64_t column = blocks.begin * kRowBlock;
  const int64_t len = std::min(blocks.end * kRowBlock, weight.num_rows) - column;
  for (int64_t row = 0; row < args.num_tokens; ++row) {
    float* y = args.y + row * args.y_stride + column;
    if (scale_ != 1.0f) pointwise_.scale(y, scale_, len, y);
    if (soft_cap_ != 0.0f) pointwise_.soft_cap(y, soft_cap_, len);
  }
}

}  // namespace roofline

// Sampling on any machine: passes over the row that a compiler vectorizes, and selection instead of sorting.
#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/sampling/contract.h"

namespace roofline {
namespace {

constexpr int kLanes = 16;
constexpr int64_t kChunk = 256;   // tokens whose weights are summed at once; the draw walks chunks, then one chunk
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct RowStats {
  float max;
  bool finite;
};

RowStats row_stats(const float* x, int64_t len) {
  float best[kLanes], poison[kLanes] = {};   // x * 0 is NaN for NaN and for infinities, and stays so in the sum
  std::fill_n(best, kLanes, -kInfinity);
  int64_t i = 0;
  for (; i + kLanes <= len; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      best[lane] = x[i + lane] > best[lane] ? x[i + lane] : best[lane];
      poison[lane] += x[i + lane] * 0.0f;
    }
  }
  for (; i < len; ++i) {
    best[0] = x[i] > best[0] ? x[i] : best[0];
    poison[0] += x[i] * 0.0f;
  }
  float poisoned = 0;
  for (float lane : poison) poisoned += lane;
  return {*std::max_element(best, best + kLanes), poisoned == 0.0f};
}

int32_t first_index_of(const float* x, int64_t len, float value) {
  return static_cast<int32_t>(std::find(x, x + len, value) - x);
}

// exp(x) for x in [-88, 0] within 2 units in the last place; 0 below -87.7, where the power of two has no exponent left.
inline float exp_negative(float x) {
  constexpr float kRound = 12582912.0f;   // 1.5 * 2^23: adding it rounds to an integer n, which is then in the low bits
  const float rounded = x * 1.44269504f + kRound;
  const float n = rounded - kRound;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * std::bit_cast<float>((std::bit_cast<uint32_t>(rounded) + 127) << 23);
}

// weights[i] = exp((x[i] - max) / temperature): the likeliest token weighs exactly 1. Two loops: in one, GCC 12 makes the bound a
// branch and vectorizes nothing.
void fill_weights(const float* x, int64_t len, float max, float temperature, float* __restrict weights) {
  const float inverse = 1.0f / temperature;
  for (int64_t i = 0; i < len; ++i) {
    const float scaled = (x[i] - max) * inverse;
    weights[i] = scaled > -88.0f ? scaled : -88.0f;
  }
  for (int64_t i = 0; i < len; ++i) weights[i] = exp_negative(weights[i]);
}

double chunk_sum(const float* weights, int64_t len) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= len; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += weights[i + lane];
  double sum = 0;
  for (float lane : lanes) sum += lane;
  for (; i < len; ++i) sum += weights[i];
  return sum;
}

double total_weight(const float* weights, int64_t len) {
  double sum = 0;
  for (int64_t i = 0; i < len; i += kChunk) sum += chunk_sum(weights + i, std::min(kChunk, len - i));
  return sum;
}

struct Ranked {
  float logit;
  int32_t id;
  float weight;
};

bool ranks_before(const Ranked& a, const Ranked& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

// The last token that is kept, by rank.
struct Cut {
  float logit = -kInfinity;
  int32_t id = std::numeric_limits<int32_t>::max();
  bool keeps(float x, int32_t i) const { return x > logit || (x == logit && i <= id); }
};

// What one thread reuses from row to row.
struct Scratch {
  std::vector<float> adjusted, weights, maxima;
  std::vector<Ranked> ranked;
};

// At least k values are no smaller than the k-th largest of 2k or more chunk maxima, so a pass against it leaves few candidates.
float top_k_bound(const float* x, int64_t len, int64_t k, std::vector<float>& maxima) {
  const int64_t chunk = std::max<int64_t>(1, len / (2 * k));
  maxima.clear();
  for (int64_t i = 0; i < len; i += chunk) maxima.push_back(*std::max_element(x + i, x + std::min(len, i + chunk)));
  std::nth_element(maxima.begin(), maxima.begin() + (k - 1), maxima.end(), std::greater<>());
  return maxima[k - 1];
}

Cut top_k_cut(const float* x, int64_t len, int64_t k, Scratch& scratch) {
  const float bound = top_k_bound(x, len, k, scratch.maxima);
  auto& ranked = scratch.ranked;
  ranked.clear();
  for (int64_t i = 0; i < len; ++i)
    if (x[i] >= bound) ranked.push_back({x[i], static_cast<int32_t>(i), 0});
  std::nth_element(ranked.begin(), ranked.begin() + (k - 1), ranked.end(), ranks_before);
  return {ranked[k - 1].logit, ranked[k - 1].id};
}

// Selection by mass: halves the range that holds the last kept token, so it takes linear time like nth_element.
Cut nucleus_cut(std::vector<Ranked>& ranked, double mass) {
  size_t low = 0, high = ranked.size();
  double before = 0;
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    std::nth_element(ranked.begin() + low, ranked.begin() + middle, ranked.begin() + high, ranks_before);
    double upper = 0;
    for (size_t i = low; i < middle; ++i) upper += ranked[i].weight;
    if (before + upper >= mass) {
      high = middle;
    } else {
      before += upper;
      low = middle;
    }
  }
  return {ranked[low].logit, ranked[low].id};
}

// Tokens lighter than (1 - p) / V of the total weigh less than 1 - p together, so the nucleus lies above that bound; half of it leaves
// room for rounding.
Cut top_p_cut(const float* x, const float* weights, int64_t len, double top_p, Cut kept, std::vector<Ranked>& ranked) {
  const double everything = total_weight(weights, len);
  const float bound = static_cast<float>((1.0 - top_p) * everything / static_cast<double>(2 * len));
  double total = 0;
  ranked.clear();
  for (int64_t i = 0; i < len; ++i) {
    const auto id = static_cast<int32_t>(i);
    if (!kept.keeps(x[i], id)) continue;
    total += weights[i];
    if (weights[i] >= bound) ranked.push_back({x[i], id, weights[i]});
  }
  return nucleus_cut(ranked, top_p * total);
}

void drop_cut_weights(const float* x, int64_t len, Cut cut, float min_weight, float* weights) {
  for (int64_t i = 0; i < len; ++i) {
    const bool kept = cut.keeps(x[i], static_cast<int32_t>(i)) & (weights[i] >= min_weight);
    weights[i] = kept ? weights[i] : 0.0f;
  }
}

// Index of the first token where the running sum of weights exceeds `target`; the last with any weight when rounding runs past all.
int32_t walk_to(const float* weights, int64_t len, double target) {
  int64_t last = 0;
  for (int64_t start = 0; start < len; start += kChunk) {
    const int64_t end = std::min(len, start + kChunk);
    const double sum = chunk_sum(weights + start, end - start);
    if (sum == 0) continue;
    double running = 0;
    for (int64_t i = start; i < end && sum > target; ++i) {
      running += weights[i];
      if (running > target) return static_cast<int32_t>(i);
    }
    for (int64_t i = start; i < end; ++i) last = weights[i] > 0 ? i : last;
    if (sum > target) return static_cast<int32_t>(last);
    target -= sum;
  }
  return static_cast<int32_t>(last);
}

int32_t draw_token(const float* x, int64_t len, float max, const SamplingState& state, Scratch& scratch) {
  const SamplingSpec& spec = state.spec();
  scratch.weights.resize(len);
  float* weights = scratch.weights.data();
  fill_weights(x, len, max, spec.temperature, weights);
  Cut cut;
  if (spec.top_k > 0 && spec.top_k < len) cut = top_k_cut(x, len, spec.top_k, scratch);
  if (spec.top_p < 1) cut = top_p_cut(x, weights, len, spec.top_p, cut, scratch.ranked);
  if (cut.logit > -kInfinity || spec.min_p > 0) drop_cut_weights(x, len, cut, spec.min_p, weights);
  const double uniform = philox_uniform(spec.seed, static_cast<uint64_t>(state.num_generated()));
  return walk_to(weights, len, uniform * total_weight(weights, len));
}

bool needs_adjusting(const SamplingState& state) {
  const SamplingSpec& spec = state.spec();
  return !spec.bias.empty() || !state.counts().empty() || (state.num_generated() < spec.min_tokens && !spec.end_ids.empty());
}

void adjust(const SamplingState& state, float* x) {
  const SamplingSpec& spec = state.spec();
  const auto bounded = [](float value) { return std::clamp(value, -FLT_MAX, FLT_MAX); };
  for (const auto& [token, bias] : spec.bias) x[token] = bounded(x[token] + bias);
  for (const auto& [token, count] : state.counts()) {
    float value = x[token] > 0 ? x[token] / spec.repetition : x[token] * spec.repetition;
    if (count > 0) value -= spec.frequency * static_cast<float>(count) + spec.presence;
    x[token] = bounded(value);
  }
  if (state.num_generated() < spec.min_tokens)
    for (int32_t token : spec.end_ids) x[token] = -kInfinity;
}

std::vector<std::pair<int32_t, float>> largest(const float* x, int64_t len, size_t count) {
  std::vector<std::pair<int32_t, float>> top;   // best first; count is at most 20, so insertion beats a heap
  count = std::min(count, static_cast<size_t>(len));
  for (int64_t i = 0; i < len && count > 0; ++i) {
    if (top.size() == count && x[i] <= top.back().second) continue;
    if (top.size() == count) top.pop_back();
    const auto at = std::find_if(top.begin(), top.end(), [&](const auto& entry) { return entry.second < x[i]; });
    top.insert(at, {static_cast<int32_t>(i), x[i]});
  }
  return top;
}

void report_logprobs(const float* x, int64_t len, float max, int num_top, Scratch& scratch, Draw* draw) {
  scratch.weights.resize(len);
  fill_weights(x, len, max, 1.0f, scratch.weights.data());
  const double log_total = std::log(total_weight(scratch.weights.data(), len));
  const auto logprob = [&](float logit) { return static_cast<float>((static_cast<double>(logit) - max) - log_total); };
  draw->logprob = logprob(x[draw->token]);
  draw->top = largest(x, len, static_cast<size_t>(num_top));
  for (auto& entry : draw->top) entry.second = logprob(entry.second);
}

Draw sample_row(const float* row, int64_t len, const SamplingState& state, Scratch& scratch) {
  Draw draw;
  const RowStats raw = row_stats(row, len);
  if (!raw.finite) {
    draw.status = DrawStatus::not_finite;
    return draw;
  }
  const float* x = row;
  float max = raw.max;
  if (needs_adjusting(state)) {
    scratch.adjusted.assign(row, row + len);
    adjust(state, scratch.adjusted.data());
    x = scratch.adjusted.data();
    max = row_stats(x, len).max;
  }
  if (max == -kInfinity) {
    draw.status = DrawStatus::nothing_left;
    return draw;
  }
  draw.token = state.spec().temperature == 0 ? first_index_of(x, len, max) : draw_token(x, len, max, state, scratch);
  if (state.spec().num_top >= 0) report_logprobs(row, len, raw.max, state.spec().num_top, scratch, &draw);
  return draw;
}

}  // namespace

SamplingState::SamplingState(SamplingSpec spec, const int32_t* prompt, int64_t prompt_len) : spec_(std::move(spec)) {
  if (spec_.repetition != 1)
    for (int64_t i = 0; i < prompt_len; ++i) counts_.try_emplace(prompt[i], 0);
}

void SamplingState::observe(int32_t token) {
  ++num_generated_;
  if (spec_.repetition != 1 || spec_.presence != 0 || spec_.frequency != 0) ++counts_[token];
}

void sample_rows(const float* logits, int64_t num_rows, int64_t vocab_size, const SamplingState* const* states, ThreadPool* pool,
                 Draw* draws) {
  const auto sample_range = [=](Range rows) {
    Scratch scratch;
    for (int64_t row = rows.begin; row < rows.end; ++row)
      draws[row] = sample_row(logits + row * vocab_size, vocab_size, *states[row], scratch);
  };
  if (pool == nullptr || num_rows < 2) return sample_range({0, num_rows});
  struct Task {
    decltype(sample_range)* sample;
    int64_t num_rows;
  } task{&sample_range, num_rows};
  pool->run(
      [](void* context, Worker& worker) {
        const Task& task = *static_cast<const Task*>(context);
        (*task.sample)(share(task.num_rows, worker.index, worker.count));
      },
      &task);
}

double philox_uniform(uint64_t seed, uint64_t counter) {
  uint32_t c[4] = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(b),
                              static_cast<uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(a)};
    std::copy_n(next, 4, c);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  const uint64_t bits = (static_cast<uint64_t>(c[0]) << 32 | c[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace roofline

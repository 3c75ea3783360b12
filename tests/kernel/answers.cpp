// Computes what a file asks for and writes the answers: for tools/arm.py, which compares them with this machine's.
//     answers QUESTIONS ANSWERS
// A question: precision (4 or 8 bytes a number), n, batch, with a derivative or not, then the table, the
// matrices and the directions, all as they lie in memory; an answer: the matrices of the result.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "table.h"

extern "C" {
int mlayer_expm_f32(const float*, const float*, float*, int64_t, int32_t, int32_t, const mlayer_table*, int32_t);
int mlayer_expm_f64(const double*, const double*, double*, int64_t, int32_t, int32_t, const mlayer_table*, int32_t);
}

static int call(const float* a, const float* e, float* out, int64_t batch, int n, const mlayer_table* table) {
  return mlayer_expm_f32(a, e, out, batch, n, 0, table, 1);
}
static int call(const double* a, const double* e, double* out, int64_t batch, int n, const mlayer_table* table) {
  return mlayer_expm_f64(a, e, out, batch, n, 0, table, 1);
}

template <typename T>
static bool answer(const int32_t* head, std::FILE* in, std::FILE* out) {
  const int n = head[1];
  const int64_t batch = head[2];
  const size_t entries = size_t(batch) * n * n;
  mlayer_table table;
  std::vector<T> a(entries), e(entries), result(entries);
  if (std::fread(&table, sizeof table, 1, in) != 1 || std::fread(a.data(), sizeof(T), entries, in) != entries)
    return false;
  if (head[3] && std::fread(e.data(), sizeof(T), entries, in) != entries) return false;
  if (call(a.data(), head[3] ? e.data() : nullptr, result.data(), batch, n, &table)) return false;
  return std::fwrite(result.data(), sizeof(T), entries, out) == entries;
}

int main(int count, char** names) {
  if (count != 3) return 2;
  std::FILE *in = std::fopen(names[1], "rb"), *out = std::fopen(names[2], "wb");
  if (!in || !out) return 2;
  int32_t head[4];
  while (std::fread(head, sizeof head, 1, in) == 1)
    if (!(head[0] == 4 ? answer<float>(head, in, out) : answer<double>(head, in, out))) return 3;
  return std::fclose(out);
}

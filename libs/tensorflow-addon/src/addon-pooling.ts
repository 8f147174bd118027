/**
 * C++ of ours in the addon: max pooling of what a convolution gives, with its bias and relu, in one pass that also says which cell of each window was the
 * first largest (a byte), and the way back, one pass that writes the gradient. TensorFlow's own operations for that take indices of 64 bits and pass over the
 * gradient three times.
 *
 *     maxPool(x, bias | -1, withPlaces, [rows, columns, strideH, strideW], relu) → [pooled] or [pooled, places]
 *     maxUnpool(dy, places, [h, w], [rows, columns, strideH, strideW]) → gradient [n, h, w, c]
 *     poolingRevision: what the two compute
 *
 * x [n, h, w, c] and dy [n, p, q, c] float32, bias [c] float32, places [n, p, q, c] of TF_BOOL, whose bytes here are cells, row by row. Windows lie inside of the image, do not
 * overlap and have at most 255 cells. Of several NaN in a window the first is its largest value. Tensors are given by their ids. One thread.
 */

/** Raised when the two passes compute other bits than before: it is part of the engine's fingerprint. */
export const POOLING_REVISION = 1;

export const POOLING_FUNCTIONS = `
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__has_attribute)
#if __has_attribute(target_clones)
#define PACELINE_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#endif
#ifndef PACELINE_CLONES
#define PACELINE_CLONES
#endif

struct PacelineWindows {
  int64_t n, h, w, c, rows, columns, stride_h, stride_w, p, q;
};

/* The innermost loops run over channels, with nothing between iterations: compilers make vectors of them. A NaN in a window is its largest value. */
PACELINE_CLONES
static void PacelineMaxPool(const PacelineWindows &s, const float *__restrict x, const float *__restrict bias, bool relu, float *__restrict y, uint8_t *__restrict places) {
  const int64_t c = s.c;
  for (int64_t n = 0; n < s.n; n++, x += s.h * s.w * c) {
    for (int64_t i = 0; i < s.p; i++) {
      for (int64_t j = 0; j < s.q; j++, y += c) {
        const float *__restrict const window = x + (i * s.stride_h * s.w + j * s.stride_w) * c;
        memcpy(y, window, c * sizeof(float));
        if (places) memset(places, 0, c);
        int cell = 0;
        for (int64_t row = 0; row < s.rows; row++) {
          for (int64_t column = 0; column < s.columns; column++, cell++) {
            const float *__restrict const value = window + (row * s.w + column) * c;
            if (places) {
              for (int64_t k = 0; k < c; k++) {
                const bool is_larger = (value[k] > y[k]) | ((value[k] != value[k]) & (y[k] == y[k]));
                y[k] = is_larger ? value[k] : y[k];
                places[k] = is_larger ? static_cast<uint8_t>(cell) : places[k];
              }
            } else {
              for (int64_t k = 0; k < c; k++) y[k] = ((value[k] > y[k]) | (value[k] != value[k])) ? value[k] : y[k];
            }
          }
        }
        if (bias)
          for (int64_t k = 0; k < c; k++) y[k] += bias[k];
        if (relu)
          for (int64_t k = 0; k < c; k++) y[k] = y[k] <= 0.0f ? 0.0f : y[k];
        if (places) places += c;
      }
    }
  }
}

PACELINE_CLONES
static void PacelineMaxUnpool(const PacelineWindows &s, const float *__restrict dy, const uint8_t *__restrict places, float *__restrict dx) {
  const int64_t c = s.c, image = s.h * s.w * c;
  const int64_t covered_h = s.p * s.stride_h, covered_w = s.q * s.stride_w;
  const bool has_gaps = s.rows < s.stride_h || s.columns < s.stride_w;
  for (int64_t n = 0; n < s.n; n++, dx += image) {
    if (has_gaps) {
      memset(dx, 0, image * sizeof(float));
    } else {
      for (int64_t i = 0; covered_w < s.w && i < covered_h; i++) memset(dx + (i * s.w + covered_w) * c, 0, (s.w - covered_w) * c * sizeof(float));
      memset(dx + covered_h * s.w * c, 0, (s.h - covered_h) * s.w * c * sizeof(float));
    }
    for (int64_t i = 0; i < s.p; i++) {
      for (int64_t j = 0; j < s.q; j++, dy += c, places += c) {
        float *__restrict const window = dx + (i * s.stride_h * s.w + j * s.stride_w) * c;
        int cell = 0;
        for (int64_t row = 0; row < s.rows; row++) {
          for (int64_t column = 0; column < s.columns; column++, cell++) {
            float *__restrict const value = window + (row * s.w + column) * c;
            for (int64_t k = 0; k < c; k++) value[k] = places[k] == cell ? dy[k] : 0.0f;
          }
        }
      }
    }
  }
}

/* The tensor behind an id, of the given type; nothing, and an exception, where it is another one. */
static TF_Tensor *PacelineTensor(napi_env env, TFJSBackend *backend, napi_value id_value, TF_DataType type, int rank) {
  int32_t id;
  if (napi_get_value_int32(env, id_value, &id) != napi_ok) {
    NAPI_THROW_ERROR(env, "a tensor is given by its id");
    return nullptr;
  }
  auto entry = backend->tfe_handle_map_.find(id);
  if (entry == backend->tfe_handle_map_.end()) {
    NAPI_THROW_ERROR(env, "there is no tensor %d", id);
    return nullptr;
  }
  TF_AutoStatus status;
  TF_Tensor *tensor = TFE_TensorHandleResolve(entry->second, status.status);
  ENSURE_TF_OK_RETVAL(env, status, nullptr);
  if (TF_TensorType(tensor) == type && TF_NumDims(tensor) == rank) return tensor;
  TF_DeleteTensor(tensor);
  NAPI_THROW_ERROR(env, "tensor %d is of another type or rank than %d and %d", id, static_cast<int>(type), rank);
  return nullptr;
}

static bool PacelineNumbers(napi_env env, napi_value array, uint32_t count, int64_t *out) {
  for (uint32_t i = 0; i < count; i++) {
    napi_value element;
    if (napi_get_element(env, array, i, &element) != napi_ok || napi_get_value_int64(env, element, &out[i]) != napi_ok || out[i] < 1) {
      NAPI_THROW_ERROR(env, "windows and images are given by %u positive numbers", count);
      return false;
    }
  }
  return true;
}

/* h and w are set; says whether the windows are such as the loops want. */
static bool PacelineFit(napi_env env, PacelineWindows *s, const int64_t window[4]) {
  s->rows = window[0], s->columns = window[1], s->stride_h = window[2], s->stride_w = window[3];
  const bool fits = s->rows <= s->h && s->columns <= s->w && s->rows <= s->stride_h && s->columns <= s->stride_w && s->rows <= 255 && s->columns <= 255 &&
                    s->rows * s->columns <= 255;
  if (!fits) {
    NAPI_THROW_ERROR(env, "windows lie inside of the image, do not overlap and have at most 255 cells");
    return false;
  }
  s->p = (s->h - s->rows) / s->stride_h + 1, s->q = (s->w - s->columns) / s->stride_w + 1;
  return true;
}

/* Nothing, and an exception, where there is no room for it. */
static TF_Tensor *PacelineAllocate(napi_env env, TF_DataType type, const int64_t shape[4], size_t element) {
  int64_t bytes = element;
  bool fits = true;
  for (int i = 0; i < 4; i++) fits = fits && !__builtin_mul_overflow(bytes, shape[i], &bytes);
  TF_Tensor *tensor = fits ? TF_AllocateTensor(type, shape, 4, bytes) : nullptr;
  if (tensor && (bytes == 0 || TF_TensorData(tensor))) return tensor;
  TF_DeleteTensor(tensor);
  NAPI_THROW_ERROR(env, "there is no room for a tensor of %lld x %lld x %lld x %lld", static_cast<long long>(shape[0]), static_cast<long long>(shape[1]),
                   static_cast<long long>(shape[2]), static_cast<long long>(shape[3]));
  return nullptr;
}

/* Hands a tensor over to the backend. */
static napi_value PacelineOutput(napi_env env, TFJSBackend *backend, TF_Tensor *tensor) {
  TF_AutoStatus status;
  TFE_TensorHandle *handle = TFE_NewTensorHandle(tensor, status.status);
  ENSURE_TF_OK_RETVAL(env, status, nullptr);
  return backend->GenerateOutputTensorInfo(env, handle);
}

static napi_value PacelineMaxPoolBinding(napi_env env, napi_callback_info info) {
  size_t argc = 5;
  napi_value args[5];
  ENSURE_NAPI_OK_RETVAL(env, napi_get_cb_info(env, info, &argc, args, nullptr, nullptr), nullptr);
  TFJSBackend *const backend = GetTFJSBackend(env);
  int32_t bias_id;
  bool with_places, relu;
  int64_t window[4];
  if (!backend || argc < 5 || napi_get_value_int32(env, args[1], &bias_id) != napi_ok || napi_get_value_bool(env, args[2], &with_places) != napi_ok ||
      napi_get_value_bool(env, args[4], &relu) != napi_ok) {
    NAPI_THROW_ERROR(env, "maxPool() takes a tensor, a bias or -1, whether places are wanted, a window and whether relu follows");
    return nullptr;
  }
  if (!PacelineNumbers(env, args[3], 4, window)) return nullptr;
  TF_AutoTensor x(PacelineTensor(env, backend, args[0], TF_FLOAT, 4));
  if (!x.tensor) return nullptr;
  TF_AutoTensor bias(bias_id < 0 ? nullptr : PacelineTensor(env, backend, args[1], TF_FLOAT, 1));
  if (bias_id >= 0 && !bias.tensor) return nullptr;
  PacelineWindows s = {TF_Dim(x.tensor, 0), TF_Dim(x.tensor, 1), TF_Dim(x.tensor, 2), TF_Dim(x.tensor, 3)};
  if (!PacelineFit(env, &s, window)) return nullptr;
  if (bias.tensor && TF_Dim(bias.tensor, 0) != s.c) {
    NAPI_THROW_ERROR(env, "the bias has another number of channels than the image");
    return nullptr;
  }
  const int64_t shape[] = {s.n, s.p, s.q, s.c};
  TF_AutoTensor y(PacelineAllocate(env, TF_FLOAT, shape, sizeof(float)));
  if (!y.tensor) return nullptr;
  TF_AutoTensor places(with_places ? PacelineAllocate(env, TF_BOOL, shape, 1) : nullptr);
  if (with_places && !places.tensor) return nullptr;
  PacelineMaxPool(s, static_cast<const float *>(TF_TensorData(x.tensor)), bias.tensor ? static_cast<const float *>(TF_TensorData(bias.tensor)) : nullptr, relu,
                  static_cast<float *>(TF_TensorData(y.tensor)), with_places ? static_cast<uint8_t *>(TF_TensorData(places.tensor)) : nullptr);
  napi_value outputs;
  ENSURE_NAPI_OK_RETVAL(env, napi_create_array(env, &outputs), nullptr);
  napi_value output = PacelineOutput(env, backend, y.tensor);
  if (!output) return nullptr;
  napi_set_element(env, outputs, 0, output);
  if (!with_places) return outputs;
  output = PacelineOutput(env, backend, places.tensor);
  if (!output) return nullptr;
  napi_set_element(env, outputs, 1, output);
  return outputs;
}

static napi_value PacelineMaxUnpoolBinding(napi_env env, napi_callback_info info) {
  size_t argc = 4;
  napi_value args[4];
  ENSURE_NAPI_OK_RETVAL(env, napi_get_cb_info(env, info, &argc, args, nullptr, nullptr), nullptr);
  TFJSBackend *const backend = GetTFJSBackend(env);
  int64_t image[2], window[4];
  if (!backend || argc < 4) {
    NAPI_THROW_ERROR(env, "maxUnpool() takes a gradient, places, the height and width of an image, and a window");
    return nullptr;
  }
  if (!PacelineNumbers(env, args[2], 2, image) || !PacelineNumbers(env, args[3], 4, window)) return nullptr;
  TF_AutoTensor dy(PacelineTensor(env, backend, args[0], TF_FLOAT, 4));
  if (!dy.tensor) return nullptr;
  TF_AutoTensor places(PacelineTensor(env, backend, args[1], TF_BOOL, 4));
  if (!places.tensor) return nullptr;
  PacelineWindows s = {TF_Dim(dy.tensor, 0), image[0], image[1], TF_Dim(dy.tensor, 3)};
  if (!PacelineFit(env, &s, window)) return nullptr;
  bool belongs = s.p == TF_Dim(dy.tensor, 1) && s.q == TF_Dim(dy.tensor, 2);
  for (int i = 0; i < 4; i++) belongs = belongs && TF_Dim(dy.tensor, i) == TF_Dim(places.tensor, i);
  if (!belongs) {
    NAPI_THROW_ERROR(env, "the gradient is not one of these windows and places");
    return nullptr;
  }
  const int64_t shape[] = {s.n, s.h, s.w, s.c};
  TF_AutoTensor dx(PacelineAllocate(env, TF_FLOAT, shape, sizeof(float)));
  if (!dx.tensor) return nullptr;
  PacelineMaxUnpool(s, static_cast<const float *>(TF_TensorData(dy.tensor)), static_cast<const uint8_t *>(TF_TensorData(places.tensor)),
                    static_cast<float *>(TF_TensorData(dx.tensor)));
  return PacelineOutput(env, backend, dx.tensor);
}
`;

/**
 * What is changed in the C++ source of tfjs-node before it is compiled. Its `tensorDataSync` copies into a new ArrayBuffer, from which a
 * gradient would be copied once more; `readTensorInto` copies from TensorFlow's buffer to where the caller wants it. `listDevices` is what
 * its JavaScript never asked for, and `maxPool` with `maxUnpool` are kernels of ours (addon-pooling.ts). The source is pinned by its hash, so
 * a place that is not found is a broken invariant.
 */
import { POOLING_FUNCTIONS, POOLING_REVISION } from './addon-pooling.js';

export interface SourceChange {
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

const FUNCTIONS = `
static napi_value ReadTensorInto(napi_env env, napi_callback_info info) {
  size_t argc = 2;
  napi_value args[2];
  ENSURE_NAPI_OK_RETVAL(env, napi_get_cb_info(env, info, &argc, args, nullptr, nullptr), nullptr);
  int32_t id;
  napi_typedarray_type type;
  size_t length;
  void *out;
  TFJSBackend *const backend = GetTFJSBackend(env);
  if (!backend || argc < 2 || napi_get_value_int32(env, args[0], &id) != napi_ok ||
      napi_get_typedarray_info(env, args[1], &type, &length, &out, nullptr, nullptr) != napi_ok || type != napi_float32_array) {
    NAPI_THROW_ERROR(env, "readTensorInto() takes the id of a tensor and a Float32Array.");
    return nullptr;
  }
  auto entry = backend->tfe_handle_map_.find(id);
  if (entry == backend->tfe_handle_map_.end()) {
    NAPI_THROW_ERROR(env, "readTensorInto() was called for a tensor that is not there (%d).", id);
    return nullptr;
  }
  TF_AutoStatus status;
  TF_AutoTensor tensor(TFE_TensorHandleResolve(entry->second, status.status));
  ENSURE_TF_OK_RETVAL(env, status, nullptr);
  if (TF_TensorType(tensor.tensor) != TF_FLOAT || TF_TensorByteSize(tensor.tensor) != length * sizeof(float)) {
    NAPI_THROW_ERROR(env, "readTensorInto() was called with an array of another size or type (%d).", id);
    return nullptr;
  }
  memcpy(out, TF_TensorData(tensor.tensor), length * sizeof(float));
  return nullptr;
}

static napi_value ListDevices(napi_env env, napi_callback_info info) {
  TFJSBackend *const backend = GetTFJSBackend(env);
  if (!backend) return nullptr;
  TF_AutoStatus status;
  TF_DeviceList *devices = TFE_ContextListDevices(backend->tfe_context_, status.status);
  ENSURE_TF_OK_RETVAL(env, status, nullptr);
  napi_value list;
  ENSURE_NAPI_OK_RETVAL(env, napi_create_array(env, &list), nullptr);
  for (int i = 0; i < TF_DeviceListCount(devices); i++) {
    napi_value device, name, type, memory;
    napi_create_object(env, &device);
    napi_create_string_utf8(env, TF_DeviceListName(devices, i, status.status), NAPI_AUTO_LENGTH, &name);
    napi_create_string_utf8(env, TF_DeviceListType(devices, i, status.status), NAPI_AUTO_LENGTH, &type);
    napi_create_int64(env, TF_DeviceListMemoryBytes(devices, i, status.status), &memory);
    napi_set_named_property(env, device, "name", name);
    napi_set_named_property(env, device, "type", type);
    napi_set_named_property(env, device, "memoryBytes", memory);
    napi_set_element(env, list, i, device);
  }
  TF_DeleteDeviceList(devices);
  return list;
}

`;

const REVISION_FUNCTION = `
static napi_value PoolingRevision(napi_env env, napi_callback_info info) {
  napi_value revision;
  ENSURE_NAPI_OK_RETVAL(env, napi_create_int32(env, ${POOLING_REVISION}, &revision), nullptr);
  return revision;
}

`;

const METHODS = {
  readTensorInto: 'ReadTensorInto',
  listDevices: 'ListDevices',
  maxPool: 'PacelineMaxPoolBinding',
  maxUnpool: 'PacelineMaxUnpoolBinding',
};

const method = ([name, function_]: [string, string]): string =>
  `      {"${name}", nullptr, ${function_}, nullptr, nullptr, nullptr, napi_default, nullptr},\n`;
const PROPERTIES =
  Object.entries(METHODS).map(method).join('') +
  '      {"poolingRevision", nullptr, nullptr, PoolingRevision, nullptr, nullptr, napi_default, nullptr},\n';

export const SOURCE_CHANGES: readonly SourceChange[] = [
  { file: 'binding/tfjs_backend.h', from: ' private:\n  TFJSBackend(napi_env env);', to: ' public:\n  TFJSBackend(napi_env env);' },
  {
    file: 'binding/tfjs_binding.cc',
    from: '#include "utils.h"\n\nnamespace tfnodejs {',
    to: '#include "utils.h"\n#include "tf_auto_tensor.h"\n\nnamespace tfnodejs {',
  },
  {
    file: 'binding/tfjs_binding.cc',
    from: 'static napi_value InitTFNodeJSBinding(napi_env env, napi_value exports) {',
    to: `${FUNCTIONS}${POOLING_FUNCTIONS}${REVISION_FUNCTION}static napi_value InitTFNodeJSBinding(napi_env env, napi_value exports) {`,
  },
  {
    file: 'binding/tfjs_binding.cc',
    from: '      {"executeOp", nullptr, ExecuteOp',
    to: `${PROPERTIES}      {"executeOp", nullptr, ExecuteOp`,
  },
];

/** Raised when the changes above change, so that an addon of an older release is built anew. */
export const ADDON_REVISION = 3;

/** Arguments for g++ or clang++; run in the package's folder. */
export const COMPILE_ARGUMENTS: readonly string[] = [
  ...['-std=c++17', '-O3', '-fPIC', '-shared', '-w'],
  ...['-DNAPI_VERSION=8', '-DNODE_GYP_MODULE_NAME=tfjs_binding', '-DBUILDING_NODE_EXTENSION'],
  ...['-I../headers/include', '-Ideps/include', 'binding/tfjs_backend.cc', 'binding/tfjs_binding.cc'],
  ...['-Ldeps/lib', '-ltensorflow', '-ltensorflow_framework', '-Wl,-rpath,$ORIGIN/../../deps/lib'],
];

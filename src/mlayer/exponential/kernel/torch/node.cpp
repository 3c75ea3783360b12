// expm as an autograd node in C++, for ordinary tensors: it saves the overhead of Python and ctypes per call.
//
// Compiled against one version of torch and loaded only by that one (node.py), so optional. It holds no
// mathematics: the value and the derivative are the kernel's entry points, whose addresses Python hands
// over, and whatever is not ordinary (transforms, forward mode, subclasses, a derivative that is to be
// differentiated itself) goes back to Python, to operator.py.
#include <Python.h>

#include <ATen/Parallel.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <cstdlib>
#include <cstring>

#include "../table.h"

#ifndef MLAYER_SOURCE_DIGEST  // set by build.py
#define MLAYER_SOURCE_DIGEST ""
#endif

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// An entry point for any of the four dtypes; the pointers are to numbers of that dtype.
using Entry = int (*)(const void*, const void*, void*, int64_t, int32_t, int32_t, const mlayer_table*, int32_t);

// The arguments of `configure`.
struct {
  Entry single, twice, complex_single, complex_twice;
  const mlayer_table *single_value, *single_derivative, *twice_value, *twice_derivative;
  int64_t largest_size;
  PyObject* pullback;  // operator.py: (matrices, cotangent) -> tensor, differentiable
} g{};

// Whether a tensor is dense, of a supported dtype, and intercepted by no transform, mode or subclass.
bool ordinary(const Tensor& t) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet strange({DispatchKey::Python, DispatchKey::PythonTLSSnapshot, DispatchKey::Negative,
                                         DispatchKey::Conjugate, DispatchKey::ZeroTensor, DispatchKey::Functionalize,
                                         DispatchKey::Batched, DispatchKey::FuncTorchBatched,
                                         DispatchKey::FuncTorchGradWrapper, DispatchKey::NestedTensor});
  return t.defined() && t.is_cpu() && t.layout() == at::kStrided &&
         (t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble || t.scalar_type() == at::kComplexFloat ||
          t.scalar_type() == at::kComplexDouble) &&
         !t.key_set().has_any(strange) &&
         !t._fw_grad(/*level=*/0).defined();
}

bool nobody_listens() {
  const auto included = c10::impl::tls_local_dispatch_key_set().included_;
  return !included.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) &&
         !included.has(c10::DispatchKey::FuncTorchDynamicLayerBackMode) &&
         !c10::impl::TorchDispatchModeTLS::any_modes_set() && !torch::jit::tracer::isTracing();
}

// The user may have asked for another path; paths.py reads the same variable.
bool wanted() {
  const char* wish = std::getenv("MLAYER_EXPM");
  return !wish || !std::strcmp(wish, "auto") || !std::strcmp(wish, "native");
}

// exp(A), or with a direction L(A, E); `adjoint`: at the (conjugate) transpose of A.
Tensor run(Tensor a, const Tensor* direction, bool adjoint) {
  if (!a.is_contiguous()) {
    if (!a.is_complex() && a.mT().is_contiguous())
      adjoint = !adjoint;
    else
      a = a.contiguous();
  }
  const Tensor e = direction ? direction->contiguous() : Tensor();
  Tensor out = at::empty(a.sizes(), a.options().requires_grad(false));
  const int64_t n = out.size(-1), batch = out.numel() / (n * n);
  const bool twice = out.scalar_type() == at::kDouble || out.scalar_type() == at::kComplexDouble;
  const Entry entry = out.is_complex() ? twice ? g.complex_twice : g.complex_single : twice ? g.twice : g.single;
  const mlayer_table* table = direction ? twice ? g.twice_derivative : g.single_derivative
                                        : twice ? g.twice_value : g.single_value;
  const int failed = entry(a.const_data_ptr(), direction ? e.const_data_ptr() : nullptr, out.mutable_data_ptr(), batch,
                           int32_t(n), adjoint, table, at::get_num_threads());
  TORCH_CHECK(!failed, "the kernel ran out of memory");
  return out;
}

Tensor pullback_in_python(const Tensor& a, const Tensor& cotangent) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject *first = THPVariable_Wrap(a), *second = THPVariable_Wrap(cotangent);
  PyObject* result = PyObject_CallFunctionObjArgs(g.pullback, first, second, nullptr);
  Py_XDECREF(first);
  Py_XDECREF(second);
  if (!result) {
    python_error error;
    error.persist();
    PyGILState_Release(state);
    throw error;
  }
  Tensor tensor = THPVariable_Unpack(result);
  Py_DECREF(result);
  PyGILState_Release(state);
  return tensor;
}

// The pull-back of exp at A is G -> L(A^H, G). A is all that is kept.
struct Expm : torch::autograd::Function<Expm> {
  static Tensor forward(AutogradContext* context, const Tensor& a) {
    context->save_for_backward({a});
    return run(a, nullptr, false);
  }
  static variable_list backward(AutogradContext* context, variable_list cotangents) {
    const Tensor a = context->get_saved_variables()[0];
    const Tensor& cotangent = cotangents[0];
    if (!cotangent.defined()) return {Tensor()};
    if (at::GradMode::is_enabled() || !ordinary(a) || !ordinary(cotangent) || !nobody_listens())
      return {pullback_in_python(a, cotangent)};
    return {run(a, &cotangent, true)};
  }
};

// expm(A), or None where operator.py must take over.
PyObject* expm(PyObject*, PyObject* argument) {
  HANDLE_TH_ERRORS
  if (!g.pullback || !THPVariable_CheckExact(argument)) Py_RETURN_NONE;
  const Tensor& a = THPVariable_Unpack(argument);
  if (!ordinary(a) || a.dim() < 2 || a.size(-1) != a.size(-2) || a.size(-1) < 1 ||
      a.size(-1) > g.largest_size / (a.is_complex() ? 2 : 1) || !nobody_listens() || !wanted())
    Py_RETURN_NONE;
  Tensor result;
  {
    PyThreadState* state = PyEval_SaveThread();
    try {
      if (a.size(-1) == 1)
        result = a.exp().contiguous();  // as in expm_function.py
      else
        result = at::GradMode::is_enabled() && a.requires_grad() ? Expm::apply(a) : run(a, nullptr, false);
    } catch (...) {
      PyEval_RestoreThread(state);
      throw;
    }
    PyEval_RestoreThread(state);
  }
  return THPVariable_Wrap(std::move(result));
  END_HANDLE_TH_ERRORS
}

// configure(four entry points, four tables, largest_size, pullback): addresses as numbers.
PyObject* configure(PyObject*, PyObject* arguments) {
  unsigned long long at[8];
  long long largest;
  PyObject* pullback;
  if (!PyArg_ParseTuple(arguments, "KKKKKKKKLO", at, at + 1, at + 2, at + 3, at + 4, at + 5, at + 6, at + 7, &largest,
                        &pullback))
    return nullptr;
  const auto table = [&](int k) { return reinterpret_cast<const mlayer_table*>(uintptr_t(at[k])); };
  const auto entry = [&](int k) { return reinterpret_cast<Entry>(uintptr_t(at[k])); };
  g.single = entry(0), g.twice = entry(1), g.complex_single = entry(2), g.complex_twice = entry(3);
  g.single_value = table(4), g.single_derivative = table(5), g.twice_value = table(6), g.twice_derivative = table(7);
  g.largest_size = largest;
  Py_INCREF(pullback);
  Py_XDECREF(g.pullback);
  g.pullback = pullback;
  Py_RETURN_NONE;
}

PyObject* version(PyObject*, PyObject*) { return PyLong_FromLong(MLAYER_KERNEL_VERSION); }

PyObject* source_digest(PyObject*, PyObject*) { return PyUnicode_FromString(MLAYER_SOURCE_DIGEST); }

PyMethodDef methods[] = {{"expm", expm, METH_O, "exp(A) of ordinary tensors, or None."},
                         {"configure", configure, METH_VARARGS, "Hands over the kernel's addresses."},
                         {"version", version, METH_NOARGS, "Of the kernel whose entry points are called."},
                         {"source_digest", source_digest, METH_NOARGS, "Of the sources it was built from."},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "_node", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__node() { return PyModule_Create(&module); }

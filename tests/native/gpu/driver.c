/* A CUDA driver without a GPU: what the real cuDNN looks up when it plans for a GPU that is not in this machine. */

enum { NO_DEVICE = 100 };

#define MISSING(name) int name(void) { return NO_DEVICE; }

int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 0; return 0; }
MISSING(cuCtxGetCurrent) MISSING(cuCtxGetLimit) MISSING(cuCtxPopCurrent) MISSING(cuCtxPushCurrent)
MISSING(cuDeviceGet) MISSING(cuGetErrorName) MISSING(cuGetErrorString) MISSING(cuKernelGetAttribute)
MISSING(cuKernelGetFunction) MISSING(cuKernelSetAttribute) MISSING(cuLaunchCooperativeKernel) MISSING(cuLaunchKernel) MISSING(cuLaunchKernelEx)
MISSING(cuLibraryGetKernel) MISSING(cuLibraryLoadData) MISSING(cuLibraryLoadFromFile) MISSING(cuLibraryUnload)
MISSING(cuLinkAddData) MISSING(cuLinkComplete) MISSING(cuLinkCreate) MISSING(cuLinkDestroy)
MISSING(cuModuleGetFunction) MISSING(cuModuleLoadData) MISSING(cuModuleUnload)
MISSING(cuOccupancyMaxPotentialClusterSize) MISSING(cuStreamGetCtx) MISSING(cuTensorMapEncodeIm2col)
MISSING(cuTensorMapEncodeTiled)

"""The C functions of GPU libraries by their CUDA names: one line per function, one letter per argument.

    p pointer or handle    i 32-bit integer or enum    l 64-bit integer or size    U ncclUniqueId by value

From the headers of CUDA 13.0, cuDNN 9.19, cuSPARSELt 0.8 and NCCL 2.28; `tests/native/test_gpu_table.py` compares the
table with the prototypes in public packages. HIP has the same functions with the same arguments under other names
(`vendor.py`), except that MIOpen (3.3) replaces cuDNN and AMD SMI (ROCm 7) replaces NVML. What only HIP has is listed
under its own name.
All functions return a status, 0 for success, except those in RETURNS.
"""

from __future__ import annotations

import ctypes
from typing import Any

TABLE = """
cudaGetDeviceCount                    p                      count
cudaSetDevice                         i                      device
cudaDeviceGetAttribute                pii                    value attribute device
cudaDeviceGetPCIBusId                 pii                    text length device
cudaDriverGetVersion                  p                      version
cudaRuntimeGetVersion                 p                      version
cudaMemGetInfo                        pp                     free total
cudaGetErrorString                    i                      status
cudaGetLastError                      -
cudaMalloc                            pl                     address bytes
cudaFree                              p                      address
hipExtMallocWithFlags                 pli                    address bytes flags
cudaHostAlloc                         pli                    address bytes flags
cudaHostGetDevicePointer              ppi                    address host_address flags
cudaMemcpyAsync                       pplip                  to from bytes kind stream
cudaMemsetAsync                       pilp                   address value bytes stream
cudaStreamCreateWithFlags             pi                     stream flags
cudaStreamSynchronize                 p                      stream
cudaStreamBeginCapture                pi                     stream mode
cudaStreamEndCapture                  pp                     stream graph
cudaGraphInstantiateWithFlags         ppl                    executable graph flags
cudaGraphUpload                       pp                     executable stream
cudaGraphLaunch                       pp                     executable stream
cudaGraphExecDestroy                  p                      executable
cudaGraphDestroy                      p                      graph
cudaEventCreateWithFlags              pi                     event flags
cudaEventRecord                       pp                     event stream
cudaEventSynchronize                  p                      event
cudaEventElapsedTime                  ppp                    milliseconds start end

cuDeviceGetName                       pii                    text length device
cuStreamWaitValue32_v2                plii                   stream address value flags

cublasCreate_v2                       p                      handle
cublasGetVersion_v2                   pp                     handle version
cublasSetStream_v2                    pp                     handle stream
cublasSetMathMode                     pi                     handle mode
cublasSetWorkspace_v2                 ppl                    handle workspace bytes
cublasGemmEx                          piiiiippiipiippiiii    handle a_t b_t m n k alpha a a_type lda b b_type ldb beta c c_type ldc compute algorithm

cublasLtCreate                        p                      handle
cublasLtGetVersion                    -
cublasLtMatmulDescCreate              pii                    description compute scale
cublasLtMatmulDescSetAttribute        pipl                   description attribute value bytes
cublasLtMatrixLayoutCreate            pilll                  layout type rows columns ld
cublasLtMatmulPreferenceCreate        p                      preference
cublasLtMatmulPreferenceSetAttribute  pipl                   preference attribute value bytes
cublasLtMatmulAlgoGetHeuristic        pppppppipp             handle description a b c d preference wanted results count
cublasLtMatmulAlgoConfigGetAttribute  piplp                  algorithm attribute value bytes written
cublasLtMatmul                        pppppppppppppplp       handle description alpha a a_layout b b_layout beta c c_layout d d_layout algorithm workspace bytes stream

cudnnCreate                           p                      handle
cudnnSetStream                        pp                     handle stream
cudnnGetVersion                       -
cudnnGetErrorString                   i                      status
cudnnGetLastErrorString               pl                     text bytes
cudnnBackendCreateDescriptor          ip                     kind descriptor
cudnnBackendDestroyDescriptor         p                      descriptor
cudnnBackendSetAttribute              piilp                  descriptor attribute type count values
cudnnBackendGetAttribute              piilpp                 descriptor attribute type wanted count values
cudnnBackendFinalize                  p                      descriptor
cudnnBackendExecute                   ppp                    handle plan variant
cudnnCreateTensorDescriptor           p                      tensor
cudnnSetTensorNdDescriptor            piipp                  tensor type rank sizes strides
cudnnCreateRNNDescriptor              p                      rnn
cudnnSetRNNDescriptor_v8              piiiiiiiiiiiipi        rnn algorithm cell bias direction input type precision math input_size hidden projection layers dropout flags
cudnnBuildRNNDynamic                  ppi                    handle rnn batch
cudnnCreateRNNDataDescriptor          p                      data
cudnnSetRNNDataDescriptor             piiiiipp               data type layout steps batch size lengths fill
cudnnGetRNNTempSpaceSizes             ppippp                 handle rnn mode x workspace reserve
cudnnGetRNNWeightSpaceSize            ppp                    handle rnn bytes
cudnnGetRNNWeightParams               ppilpipppp             handle rnn layer bytes weights gate matrix matrix_address bias bias_address
cudnnRNNForward                       ppippppppppppplplplp   handle rnn mode lengths x_desc x y_desc y h_desc hx hy c_desc cx cy weight_bytes weights workspace_bytes workspace reserve_bytes reserve
cudnnRNNBackwardData_v8               pppppppppppppppplplplp handle rnn lengths y_desc y dy x_desc dx h_desc hx dhy dhx c_desc cx dcy dcx weight_bytes weights workspace_bytes workspace reserve_bytes reserve
cudnnRNNBackwardWeights_v8            ppippppppplplplp       handle rnn add lengths x_desc x h_desc hx y_desc y weight_bytes gradient workspace_bytes workspace reserve_bytes reserve

miopenCreateWithStream                pp                     handle stream
miopenGetVersion                      ppp                    major minor patch
miopenGetErrorString                  i                      status
miopenCreateTensorDescriptor          p                      tensor
miopenSetTensorDescriptor             piipp                  tensor type rank sizes strides
miopenCreateConvolutionDescriptor     p                      convolution
miopenInitConvolutionNdDescriptor     pipppi                 convolution dimensions padding stride dilation mode
miopenSetConvolutionGroupCount        pi                     convolution groups
miopenSetConvolutionAttribute         pii                    convolution attribute value
miopenConvolutionForwardGetSolutionCount          pppppp       handle w x convolution y count
miopenConvolutionForwardGetSolution               ppppplpp     handle w x convolution y wanted count solutions
miopenConvolutionForwardCompileSolution           pppppl       handle w x convolution y solution
miopenConvolutionForwardImmediate                 pppppppppll  handle w_desc w x_desc x convolution y_desc y workspace bytes solution
miopenConvolutionBackwardDataGetSolutionCount     pppppp       handle dy w convolution dx count
miopenConvolutionBackwardDataGetSolution          ppppplpp     handle dy w convolution dx wanted count solutions
miopenConvolutionBackwardDataCompileSolution      pppppl       handle dy w convolution dx solution
miopenConvolutionBackwardDataImmediate            pppppppppll  handle dy_desc dy w_desc w convolution dx_desc dx workspace bytes solution
miopenConvolutionBackwardWeightsGetSolutionCount  pppppp       handle dy x convolution dw count
miopenConvolutionBackwardWeightsGetSolution       ppppplpp     handle dy x convolution dw wanted count solutions
miopenConvolutionBackwardWeightsCompileSolution   pppppl       handle dy x convolution dw solution
miopenConvolutionBackwardWeightsImmediate         pppppppppll  handle dy_desc dy x_desc x convolution dw_desc dw workspace bytes solution
miopenCreateRNNDescriptor             p                      rnn
miopenSetRNNDescriptor                piiiiiiii              rnn hidden layers input direction cell bias algorithm type
miopenCreateSeqTensorDescriptor       p                      data
miopenSetRNNDataSeqTensorDescriptor   piiiiipp               data type layout steps batch size lengths fill
miopenGetRNNTempSpaceSizes            pppipp                 handle rnn x mode workspace reserve
miopenGetRNNParamsSize                ppppi                  handle rnn x bytes type
miopenGetRNNLayerParamOffset          pipipp                 rnn layer x matrix matrix_desc elements
miopenGetRNNLayerBiasOffset           pipipp                 rnn layer x bias bias_desc elements
miopenRNNForward                      ppippppppppppplplpl    handle rnn mode x_desc x h_desc hx hy c_desc cx cy y_desc y weights weight_bytes workspace workspace_bytes reserve reserve_bytes
miopenRNNBackwardSeqData              pppppppppppppppplplpl  handle rnn y_desc y dy h_desc hx dhy dhx c_desc cx dcy dcx x_desc dx weights weight_bytes workspace workspace_bytes reserve reserve_bytes
miopenRNNBackwardWeightsSeqTensor     ppppppppplplpl         handle rnn x_desc x h_desc hx y_desc y gradient weight_bytes workspace workspace_bytes reserve reserve_bytes

cusparseCreate                        p                      handle
cusparseSetStream                     pp                     handle stream
cusparseGetVersion                    pp                     handle version
cusparseCreateCsr                     plllpppiiii            matrix rows columns non_zeros starts indices values start_type index_type base type
cusparseCreateDnMat                   plllpii                matrix rows columns ld values type order
cusparseCreateDnVec                   plpi                   vector size values type
cusparseSpMM_bufferSize               piipppppiip            handle a_t b_t alpha a b beta c type algorithm bytes
cusparseSpMM_preprocess               piipppppiip            handle a_t b_t alpha a b beta c type algorithm buffer
cusparseSpMM                          piipppppiip            handle a_t b_t alpha a b beta c type algorithm buffer
cusparseSpMV_bufferSize               pipppppiip             handle a_t alpha a x beta y type algorithm bytes
cusparseSpMV_preprocess               pipppppiip             handle a_t alpha a x beta y type algorithm buffer
cusparseSpMV                          pipppppiip             handle a_t alpha a x beta y type algorithm buffer

cusparseLtInit                        p                      handle
cusparseLtGetVersion                  pp                     handle version
cusparseLtDenseDescriptorInit         ppllliii               handle matrix rows columns ld alignment type order
cusparseLtStructuredDescriptorInit    ppllliiii              handle matrix rows columns ld alignment type order sparsity
cusparseLtMatmulDescriptorInit        ppiippppi              handle description a_t b_t a b c d compute
cusparseLtMatmulAlgSelectionInit      pppi                   handle selection description algorithm
cusparseLtGetErrorString              i                      status
cusparseLtMatmulAlgSetAttribute       ppipl                  handle selection attribute value bytes
cusparseLtMatmulAlgGetAttribute       ppipl                  handle selection attribute value bytes
cusparseLtMatmulPlanInit              pppp                   handle plan description selection
cusparseLtMatmulGetWorkspace          ppp                    handle plan bytes
cusparseLtSpMMAPrune                  ppppip                 handle description from to algorithm stream
cusparseLtSpMMAPruneCheck             ppppp                  handle description matrix valid stream
cusparseLtSpMMACompressedSize         pppp                   handle plan bytes buffer_bytes
cusparseLtSpMMACompress               pppppp                 handle plan dense compressed buffer stream
cusparseLtMatmulSearch                ppppppppppi            handle plan alpha a b beta c d workspace streams count
cusparseLtMatmul                      ppppppppppi            handle plan alpha a b beta c d workspace streams count

ncclGetVersion                        p                      version
ncclGetErrorString                    i                      status
ncclGetUniqueId                       p                      id
ncclCommInitRank                      piUi                   communicator ranks id rank
ncclCommInitAll                       pip                    communicators count devices
ncclCommDestroy                       p                      communicator
ncclCommAbort                         p                      communicator
ncclGroupStart                        -
ncclGroupEnd                          -
ncclAllReduce                         ppliipp                from to count type op communicator stream
ncclReduceScatter                     ppliipp                from to count type op communicator stream
ncclAllGather                         pplipp                 from to count type communicator stream
ncclBroadcast                         ppliipp                from to count type root communicator stream
ncclSend                              pliipp                 from count type to_rank communicator stream
ncclRecv                              pliipp                 to count type from_rank communicator stream

nvmlInit_v2                           -
nvmlErrorString                       i                      status
nvmlSystemGetDriverVersion            pi                     text length
nvmlDeviceGetHandleByPciBusId_v2      pp                     bus_id device
nvmlDeviceGetClockInfo                pip                    device kind mhz
nvmlDeviceGetMaxClockInfo             pip                    device kind mhz
nvmlDeviceGetCurrentClocksEventReasons  pp                   device reasons
nvmlDeviceGetPowerUsage               pp                     device milliwatts
nvmlDeviceGetTemperature              pip                    device sensor celsius
nvmlDeviceGetTotalEnergyConsumption   pp                     device millijoules
nvmlDeviceGetComputeRunningProcesses_v3  ppp                 device count processes

amdsmi_init                           l                      flags
amdsmi_get_processor_handle_from_bdf  lp                     bus_id device
amdsmi_get_clock_info                 pip                    device kind clocks
amdsmi_get_power_info                 pp                     device power
amdsmi_get_temp_metric                piip                   device sensor metric celsius
amdsmi_get_energy_count               pppp                   device count microjoules timestamp
amdsmi_get_gpu_process_list           ppp                    device count processes
"""  # noqa: E501

# Function name → letters of its arguments.
FUNCTIONS = {row[0]: row[1].strip("-") for row in map(str.split, TABLE.splitlines()) if row}

# Return types of functions that do not return a status.
RETURNS: dict[str, Any] = {
    **{name: ctypes.c_char_p for name in FUNCTIONS if name.endswith("ErrorString")},
    "cudnnGetLastErrorString": None,
    "cublasLtGetVersion": ctypes.c_size_t,
    "cudnnGetVersion": ctypes.c_size_t,
}


class UniqueId(ctypes.Structure):
    """ncclUniqueId: 128 bytes, by value."""

    _fields_ = (("internal", ctypes.c_byte * 128),)


KINDS: dict[str, Any] = {"p": ctypes.c_void_p, "i": ctypes.c_int, "l": ctypes.c_int64, "U": UniqueId}

# The library of a function, by the beginning of its name. The first match counts.
PARTS = {
    "cuda": "runtime",
    "hip": "runtime",
    "cudnn": "dnn",
    "cublasLt": "blaslt",
    "cublas": "blas",
    "cusparseLt": "sparselt",
    "cusparse": "sparse",
    "cu": "driver",
    "nccl": "ccl",
    "nvml": "management",
    "miopen": "miopen",
    "amdsmi": "amdsmi",
}


def part_of(name: str) -> str:
    """The library of this function: `runtime`, `blas` …"""
    return next(part for beginning, part in PARTS.items() if name.startswith(beginning))


def declare(function: Any, name: str, letters: str | None = None) -> Any:
    """Set the types of a loaded function as in the table, or as in `letters`."""
    function.argtypes = [KINDS[letter] for letter in letters or FUNCTIONS[name]]
    function.restype = RETURNS.get(name, ctypes.c_int)
    return function

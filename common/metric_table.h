/*
 * The metrics, one entry each: everything that PrecisionProbe knows of a metric is here. The
 * schema's list (crds/) is checked against it; the wire, the store's columns, tables for people,
 * GPM's and CUPTI's readings and Prometheus' queries are made from it.
 *
 * ENTRY(ID, "wireName", members of a pp_metric_info ...): ID names PP_METRIC_<ID>.
 *
 * Metrics that PM sampling tells come first, in the order in which running agents and stored rows
 * have them: a new one goes to their end.
 *
 * Sources: DCGM's fields from dcgm_fields.h, whose profiling fields are means over the collection
 * interval, bytes among them as bytes per second; AMD's from its device-metrics-exporter; GPM's
 * numbers and units from nvml.h (nvmlGpmMetricId_t); names of CUPTI in order of preference, of
 * which the first that a chip offers is taken. Of the sampled ones the first names were held
 * against Nsight Compute on Hopper; of names for other chips is known only that CUPTI schedules
 * them so. `tpc__warps_active_realtime` reads double on an H200.
 */
#ifndef PP_COMMON_METRIC_TABLE_H
#define PP_COMMON_METRIC_TABLE_H

/* clang-format off */

#define PP_OF_PEAK(name) name ".avg.pct_of_peak_sustained_elapsed"

/* What the range, the factor of tables for people and GPM's unit of a kind are. */
#define PP_METRIC_IS_SHARE   .kind = PP_METRIC_SHARE, .unit = "share of 1", .shown = 100, .min = 0, .max = 1
#define PP_METRIC_IS_PERCENT .kind = PP_METRIC_SHARE, .unit = "percent", .shown = 1, .min = 0, .max = 100
#define PP_METRIC_IS_LEVEL(of)  .kind = PP_METRIC_LEVEL, .unit = (of), .shown = 1, .min = PP_METRIC_OPEN, .max = PP_METRIC_OPEN
#define PP_METRIC_IS_RATE(of, amount) \
    .kind = PP_METRIC_RATE, .unit = (of), .per_step = (amount), .shown = 1, .min = PP_METRIC_OPEN, .max = PP_METRIC_OPEN

#define PP_GPM_PERCENT 0.01     /* of GPM's, to a share of 1 */
#define PP_GPM_MIB 1048576.0    /* GPM's MiB per second, to bytes */

#define PP_METRIC_TABLE_SAMPLED(ENTRY) \
    ENTRY(SM_ACTIVE, "smActive", .spec_name = "SMActive", .column = "sm_active", .heading = "SMActive", \
          PP_METRIC_IS_SHARE, .within_sms = true, .place = 1, .usual = true, .replayed = true, \
          .dcgm = {"DCGM_FI_PROF_SM_ACTIVE", 1}, .amd = {"gpu_prof_sm_active", 0.01}, .gpm = {2, PP_GPM_PERCENT}, \
          .cupti = {PP_OF_PEAK("sm__cycles_active")}) \
    ENTRY(SM_OCCUPANCY, "smOccupancy", .spec_name = "SMOccupancy", .column = "sm_occupancy", .heading = "SMOcc.", \
          PP_METRIC_IS_SHARE, .within_sms = true, .place = 2, .usual = true, .replayed = true, \
          .dcgm = {"DCGM_FI_PROF_SM_OCCUPANCY", 1}, .amd = {"gpu_prof_occupancy_percent", 0.01}, \
          .gpm = {3, PP_GPM_PERCENT}, .cupti = {PP_OF_PEAK("sm__warps_active")}) \
    ENTRY(DRAM_ACTIVE, "dramActive", .spec_name = "DRAMActive", .column = "dram_active", .heading = "DRAM", \
          PP_METRIC_IS_SHARE, .place = 3, .usual = true, .replayed = true, \
          .dcgm = {"DCGM_FI_PROF_DRAM_ACTIVE", 1}, .gpm = {10, PP_GPM_PERCENT}, \
          .cupti = {PP_OF_PEAK("dram__throughput")}, .peak = PP_PEAK_MEMORY) \
    ENTRY(FP32_ACTIVE, "fp32Active", .spec_name = "FP32Active", .column = "fp32_active", .heading = "FP32", \
          PP_METRIC_IS_SHARE, .within_sms = true, .place = 4, .usual = true, .replayed = true, .peak = PP_PEAK_FP32, \
          .dcgm = {"DCGM_FI_PROF_PIPE_FP32_ACTIVE", 1}, .gpm = {12, PP_GPM_PERCENT}, \
          .cupti = {PP_OF_PEAK("TPC.TriageCompute.sm__inst_executed_pipe_fma_realtime"), \
                    PP_OF_PEAK("SM_C.TriageAC.smsp__inst_executed_pipe_fma"), \
                    PP_OF_PEAK("sm__inst_executed_pipe_fma_realtime"), \
                    PP_OF_PEAK("sm__inst_executed_pipe_fma"), \
                    PP_OF_PEAK("TPC.TriageCompute.sm__pipe_fma_cycles_active_realtime"), \
                    PP_OF_PEAK("sm__pipe_fma_cycles_active")}) \
    /* Cycles, not instructions: on Hopper one wgmma keeps the pipe busy for many. */ \
    ENTRY(TENSOR_ACTIVE, "tensorActive", .spec_name = "TensorActive", .column = "tensor_active", .heading = "Tensor", \
          PP_METRIC_IS_SHARE, .within_sms = true, .place = 5, .replayed = true, .peak = PP_PEAK_TENSOR, \
          .dcgm = {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 1}, .amd = {"gpu_prof_tensor_active_percent", 0.01}, \
          .gpm = {5, PP_GPM_PERCENT}, \
          .cupti = {PP_OF_PEAK("sm__pipe_tensor_cycles_active"), \
                    PP_OF_PEAK("sm__pipe_tensor_cycles_active_realtime"), \
                    PP_OF_PEAK("TPC.TriageCompute.sm__pipe_tensor_cycles_active_realtime"), \
                    PP_OF_PEAK("SM_A.TriageAC.sm__pipe_tensor_cycles_active")}) \
    /* Cycles in a sample: sampled it is GHz. */ \
    ENTRY(SM_CLOCK, "smClock", .spec_name = "SMClock", .column = "sm_clock", .heading = "SMClock", \
          PP_METRIC_IS_LEVEL("MHz"), .sampled_scale = 1000, \
          .dcgm = {"DCGM_FI_DEV_SM_CLOCK", 1}, \
          .cupti = {"sm__cycles_elapsed.avg", "sm__cycles_elapsed.max", \
                    "gpc__cycles_elapsed.avg", "gpc__cycles_elapsed.max"})

#define PP_METRIC_TABLE_OTHER(ENTRY) \
    ENTRY(GPU_UTIL, "", .spec_name = "GPUUtil", .column = "gpu_util", .heading = "GPUUtil", \
          PP_METRIC_IS_PERCENT, .time_of_kernels = true, .place = 6, .usual = true, \
          .dcgm = {"DCGM_FI_DEV_GPU_UTIL", 1}, .amd = {"gpu_gfx_activity", 1}) \
    ENTRY(GPU_MEM, "", .spec_name = "GPUMem", .column = "gpu_mem", .heading = "GPUMem", \
          PP_METRIC_IS_LEVEL("MiB"), .usual = true, \
          .dcgm = {"DCGM_FI_DEV_FB_USED", 1}, .amd = {"gpu_used_vram", 1}) \
    ENTRY(FP16_ACTIVE, "", .spec_name = "FP16Active", .column = "fp16_active", .heading = "FP16", \
          PP_METRIC_IS_SHARE, .within_sms = true, \
          .dcgm = {"DCGM_FI_PROF_PIPE_FP16_ACTIVE", 1}, .gpm = {13, PP_GPM_PERCENT}) \
    ENTRY(PCIE_TX, "", .spec_name = "PCIeTx", .column = "pcie_tx", .heading = "PCIeTx", \
          PP_METRIC_IS_RATE("bytes per second", "bytes"), \
          .dcgm = {"DCGM_FI_PROF_PCIE_TX_BYTES", 1}, .gpm = {20, PP_GPM_MIB}) \
    ENTRY(PCIE_RX, "", .spec_name = "PCIeRx", .column = "pcie_rx", .heading = "PCIeRx", \
          PP_METRIC_IS_RATE("bytes per second", "bytes"), \
          .dcgm = {"DCGM_FI_PROF_PCIE_RX_BYTES", 1}, .gpm = {21, PP_GPM_MIB}) \
    ENTRY(NVLINK_TX, "", .spec_name = "NVLinkTx", .column = "nvlink_tx", .heading = "NVLinkTx", \
          PP_METRIC_IS_RATE("bytes per second", "bytes"), \
          .dcgm = {"DCGM_FI_PROF_NVLINK_TX_BYTES", 1}, .gpm = {61, PP_GPM_MIB}) \
    ENTRY(NVLINK_RX, "", .spec_name = "NVLinkRx", .column = "nvlink_rx", .heading = "NVLinkRx", \
          PP_METRIC_IS_RATE("bytes per second", "bytes"), \
          .dcgm = {"DCGM_FI_PROF_NVLINK_RX_BYTES", 1}, .gpm = {60, PP_GPM_MIB}) \
    ENTRY(POWER, "", .spec_name = "Power", .column = "power", .heading = "Power", \
          PP_METRIC_IS_RATE("watts", "joules"), \
          .dcgm = {"DCGM_FI_DEV_POWER_USAGE", 1}, .amd = {"gpu_power_usage", 1})

#define PP_METRIC_TABLE(ENTRY) PP_METRIC_TABLE_SAMPLED(ENTRY) PP_METRIC_TABLE_OTHER(ENTRY)

/* clang-format on */

#endif

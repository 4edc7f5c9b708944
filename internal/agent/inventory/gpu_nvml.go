//go:build nvml && cgo

package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// gpus lists the machine's GPUs and the indices of those in use, through the
// driver's own library. A machine that lacks it has no GPUs.
func gpus(ctx context.Context) (all []fleet.GPU, busy []int, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	lib := nvml.New()
	if ret := lib.Init(); ret != nvml.SUCCESS {
		if ret == nvml.ERROR_LIBRARY_NOT_FOUND || ret == nvml.ERROR_DRIVER_NOT_LOADED {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("open NVML: %w", ret)
	}
	defer func() {
		if ret := lib.Shutdown(); ret != nvml.SUCCESS {
			err = errors.Join(err, fmt.Errorf("close NVML: %w", ret))
		}
	}()
	return viaNVML(lib)
}

func viaNVML(lib nvml.Interface) (all []fleet.GPU, busy []int, err error) {
	count, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, nil, fmt.Errorf("count GPUs: %w", ret)
	}
	driver, ret := lib.SystemGetDriverVersion()
	if ret != nvml.SUCCESS {
		driver = ""
	}
	for i := range min(count, maxGPUs) {
		gpu := fleet.GPU{Index: i, UUID: fmt.Sprintf("index-%d", i), Driver: word(driver)}
		device, ret := lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			gpu.Error = "the driver cannot reach it: " + word(ret.Error())
		} else if readDevice(device, &gpu) {
			busy = append(busy, i)
		}
		all = append(all, gpu)
	}
	return all, busy, nil
}

// readDevice fills in one GPU and reports whether a process runs on it.
func readDevice(device nvml.Device, gpu *fleet.GPU) (busy bool) {
	name, ret := device.GetName()
	if ret == nvml.SUCCESS {
		gpu.Model = word(name)
	}
	if uuid, ret := device.GetUUID(); ret == nvml.SUCCESS {
		gpu.UUID = word(uuid)
	} else {
		gpu.Error = "its UUID cannot be read: " + word(ret.Error())
	}
	if memory, ret := device.GetMemoryInfo(); ret == nvml.SUCCESS {
		gpu.Memory = job.Bytes(memory.Total)
	} else {
		gpu.Error = "its memory cannot be read: " + word(ret.Error())
	}
	if _, _, _, failed, ret := device.GetRemappedRows(); ret == nvml.SUCCESS && failed {
		gpu.Error = "its memory has rows that could not be remapped"
	}
	if pending, ret := device.GetRetiredPagesPendingStatus(); ret == nvml.SUCCESS && pending == nvml.FEATURE_ENABLED {
		gpu.Error = "its memory has pages that wait to be retired; it needs a reset"
	}
	procs, ret := device.GetComputeRunningProcesses()
	return ret == nvml.SUCCESS && len(procs) > 0
}

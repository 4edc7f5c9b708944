//go:build nvml && cgo

package inventory

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// newDriver returns the driver for the GPUs of this machine.
func newDriver() driver { return &library{lib: nvml.New()} }

// library reads the GPUs through NVML, the library of the NVIDIA driver. It stays open between
// looks, because the driver delivers events only to open event sets.
type library struct {
	lib  nvml.Interface
	open bool
	set  nvml.EventSet // nil if the driver offers no events
}

// maxEvents bounds the number of events read in one look.
const maxEvents = 1000

// devices lists the GPUs of the machine. A machine without the library has none.
func (l *library) devices(ctx context.Context) ([]device, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	if !l.open {
		ret := l.lib.Init()
		if ret == nvml.ERROR_LIBRARY_NOT_FOUND || ret == nvml.ERROR_DRIVER_NOT_LOADED {
			return nil, nil
		}
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("open NVML: %w", ret)
		}

		l.open = true
		l.listen()
	}

	all, err := l.list()
	if err != nil { // a replaced driver requires that the library is opened again
		err = errors.Join(err, l.close())
	}

	return all, err
}

// listen registers for the Xid events of every device. A device without such events is skipped,
// because the kernel log reports its errors too.
func (l *library) listen() {
	set, ret := l.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return
	}

	heard := 0

	count, ret := l.lib.DeviceGetCount()
	for i := 0; i < count && ret == nvml.SUCCESS; i++ {
		handle, found := l.lib.DeviceGetHandleByIndex(i)
		if found == nvml.SUCCESS && handle.RegisterEvents(nvml.EventTypeXidCriticalError, set) == nvml.SUCCESS {
			heard++
		}
	}

	if heard > 0 || set.Free() != nvml.SUCCESS {
		l.set = set // freed when the library is closed
	}
}

// xids returns the Xid errors since the last call.
func (l *library) xids() []xid {
	var all []xid
	for l.set != nil && len(all) < maxEvents {
		event, ret := l.set.Wait(0)
		if ret != nvml.SUCCESS {
			break // no event is left, or a device was lost, which devices reports
		}

		uuid, ret := event.Device.GetUUID()
		if ret == nvml.SUCCESS && event.EventType == nvml.EventTypeXidCriticalError {
			all = append(all, xid{uuid: word(uuid), code: int(event.EventData)})
		}
	}

	return all
}

func (l *library) close() error {
	var errs []error
	if l.set != nil {
		if ret := l.set.Free(); ret != nvml.SUCCESS {
			errs = append(errs, fmt.Errorf("close NVML events: %w", ret))
		}

		l.set = nil
	}

	if l.open {
		if ret := l.lib.Shutdown(); ret != nvml.SUCCESS {
			errs = append(errs, fmt.Errorf("close NVML: %w", ret))
		}

		l.open = false
	}

	return errors.Join(errs...)
}

func (l *library) list() ([]device, error) {
	count, ret := l.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("count GPUs: %w", ret)
	}

	driver, ret := l.lib.SystemGetDriverVersion()
	if ret != nvml.SUCCESS {
		driver = ""
	}

	var all []device
	for i := range min(count, maxGPUs) {
		d := device{gpu: fleet.GPU{Index: i, UUID: unnamedID(i), Driver: word(driver)}, draw: -1, uncorrected: -1, utilization: -1}
		handle, ret := l.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			d.gpu.Error = "the driver cannot reach it: " + word(ret.Error())
		} else {
			d.read(handle)
		}

		all = append(all, d)
	}

	return all, nil
}

// read fills in the fields of one device. Fields that the device does not support stay empty.
func (d *device) read(handle nvml.Device) {
	if name, ret := handle.GetName(); ret == nvml.SUCCESS {
		d.gpu.Model = word(name)
	}

	if uuid, ret := handle.GetUUID(); ret == nvml.SUCCESS {
		d.gpu.UUID = word(uuid)
	} else {
		d.gpu.Error = "cannot read UUID: " + word(ret.Error())
	}

	if pci, ret := handle.GetPciInfo(); ret == nvml.SUCCESS {
		d.bus = fmt.Sprintf("%04x:%02x:%02x", pci.Domain, pci.Bus, pci.Device)
	}

	used, problem := d.readMemory(handle)
	if problem != "" {
		d.gpu.Error = "cannot read memory size: " + problem
	}

	d.readErrors(handle)
	d.readHeat(handle)

	if limit, ret := handle.GetEnforcedPowerLimit(); ret == nvml.SUCCESS {
		d.gpu.Watts = float64(limit) / 1000
	}

	if draw, ret := handle.GetPowerUsage(); ret == nvml.SUCCESS {
		d.draw = float64(draw) / 1000
	}

	if rates, ret := handle.GetUtilizationRates(); ret == nvml.SUCCESS {
		d.utilization = min(float64(rates.Gpu)/100, 1)
	}

	mig, _, ret := handle.GetMigMode()
	d.use(d.readProcesses(handle), used, ret == nvml.SUCCESS && mig == nvml.DEVICE_MIG_ENABLE)
}

// readMemory records the memory size and returns the bytes in use, or why they are unknown. It
// tries the newer call first, because the older one counts the reserve of the driver as used.
func (d *device) readMemory(handle nvml.Device) (used job.Bytes, problem string) {
	if memory, ret := handle.GetMemoryInfo_v2(); ret == nvml.SUCCESS {
		d.gpu.Memory = job.Bytes(memory.Total)
		return job.Bytes(memory.Used), ""
	}

	memory, ret := handle.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return 0, word(ret.Error())
	}

	d.gpu.Memory = job.Bytes(memory.Total)

	return 0, ""
}

func (d *device) readErrors(handle nvml.Device) {
	if _, _, pending, failed, ret := handle.GetRemappedRows(); ret == nvml.SUCCESS {
		if pending {
			d.gpu.Error = remapPending
		}

		if failed {
			d.gpu.Error = remapFailed
		}
	}

	if pending, ret := handle.GetRetiredPagesPendingStatus(); ret == nvml.SUCCESS && pending == nvml.FEATURE_ENABLED {
		d.gpu.Error = retiring
	}

	if n, ret := handle.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC); ret == nvml.SUCCESS {
		d.uncorrected = int64(n)
	}

	fields := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if ret := handle.GetFieldValues(fields); ret == nvml.SUCCESS && nvml.Return(fields[0].NvmlReturn) == nvml.SUCCESS {
		d.recovery = recoveryName(binary.NativeEndian.Uint32(fields[0].Value[:]))
	}
}

// recoveryName names the recovery action that the driver recommends, "" for none.
func recoveryName(action uint32) string {
	switch action {
	case 0:
		return ""
	case 1:
		return "GPU reset"
	case 2:
		return "node reboot"
	case 3:
		return "drain of its peers"
	case 4:
		return "drain and reset"
	}

	return fmt.Sprintf("action %d", action)
}

func (d *device) readHeat(handle nvml.Device) {
	now, ret1 := handle.GetTemperature(nvml.TEMPERATURE_GPU)
	slow, ret2 := handle.GetTemperatureThreshold(nvml.TEMPERATURE_THRESHOLD_SLOWDOWN)
	if ret1 == nvml.SUCCESS {
		d.celsius = float64(now)
	}

	if ret1 == nvml.SUCCESS && ret2 == nvml.SUCCESS && slow > 0 && now >= slow {
		d.hot = fmt.Sprintf("at %d °C", slow)
		return
	}

	const thermal = 0x40 // the hardware limits the clock because of heat
	if reasons, ret := handle.GetCurrentClocksEventReasons(); ret == nvml.SUCCESS && reasons&thermal != 0 {
		d.hot = "reported by the driver"
	}
}

func (d *device) readProcesses(handle nvml.Device) []Process {
	var all []Process
	add := func(list []nvml.ProcessInfo, ret nvml.Return, paints bool) {
		if ret != nvml.SUCCESS {
			return
		}

		for _, p := range list {
			if slices.ContainsFunc(all, func(o Process) bool { return o.PID == int(p.Pid) }) {
				continue // it computes and draws: already listed as a compute process
			}

			memory := p.UsedGpuMemory
			if memory > 1<<50 { // the driver's value for "unknown"
				memory = 0
			}

			all = append(all, Process{GPU: d.gpu.Index, PID: int(p.Pid), Memory: job.Bytes(memory), paints: paints})
		}
	}

	computes, ret := handle.GetComputeRunningProcesses()
	add(computes, ret, false)
	paints, ret := handle.GetGraphicsRunningProcesses()
	add(paints, ret, true)

	return all
}

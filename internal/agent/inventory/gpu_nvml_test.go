//go:build nvml && cgo

package inventory

import (
	"encoding/binary"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fleet"
)

// nvmlDevice is a GPU that supports nothing but what a test gives it.
func nvmlDevice(uuid string) *mock.Device {
	no := nvml.ERROR_NOT_SUPPORTED
	return &mock.Device{
		GetNameFunc:                      func() (string, nvml.Return) { return "NVIDIA A100-SXM4-80GB", nvml.SUCCESS },
		GetUUIDFunc:                      func() (string, nvml.Return) { return uuid, nvml.SUCCESS },
		GetPciInfoFunc:                   func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{Bus: 0x3b}, nvml.SUCCESS },
		GetMemoryInfo_v2Func:             func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{}, no },
		GetMemoryInfoFunc:                func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 80 << 30, Used: 2 << 30}, nvml.SUCCESS },
		GetRemappedRowsFunc:              func() (int, int, bool, bool, nvml.Return) { return 0, 0, false, false, no },
		GetRetiredPagesPendingStatusFunc: func() (nvml.EnableState, nvml.Return) { return 0, no },
		GetTotalEccErrorsFunc: func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
			return 0, no
		},
		GetFieldValuesFunc:               func([]nvml.FieldValue) nvml.Return { return no },
		GetTemperatureFunc:               func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, no },
		GetTemperatureThresholdFunc:      func(nvml.TemperatureThresholds) (uint32, nvml.Return) { return 0, no },
		GetCurrentClocksEventReasonsFunc: func() (uint64, nvml.Return) { return 0, no },
		GetEnforcedPowerLimitFunc:        func() (uint32, nvml.Return) { return 0, no },
		GetPowerUsageFunc:                func() (uint32, nvml.Return) { return 0, no },
		GetMigModeFunc:                   func() (int, int, nvml.Return) { return 0, 0, no },
		GetComputeRunningProcessesFunc:   func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS },
		GetGraphicsRunningProcessesFunc:  func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS },
		RegisterEventsFunc:               func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS },
	}
}

// nvmlLibrary is a library with these devices, nil for one that is lost, and events.
func nvmlLibrary(events *[]nvml.EventData, devices ...*mock.Device) *library {
	set := &mock.EventSet{
		FreeFunc: func() nvml.Return { return nvml.SUCCESS },
		WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
			if len(*events) == 0 {
				return nvml.EventData{}, nvml.ERROR_TIMEOUT
			}

			first := (*events)[0]
			*events = (*events)[1:]

			return first, nvml.SUCCESS
		},
	}

	return &library{lib: &mock.Interface{
		InitFunc:                   func() nvml.Return { return nvml.SUCCESS },
		ShutdownFunc:               func() nvml.Return { return nvml.SUCCESS },
		EventSetCreateFunc:         func() (nvml.EventSet, nvml.Return) { return set, nvml.SUCCESS },
		SystemGetDriverVersionFunc: func() (string, nvml.Return) { return "550", nvml.SUCCESS },
		DeviceGetCountFunc:         func() (int, nvml.Return) { return len(devices), nvml.SUCCESS },
		DeviceGetHandleByIndexFunc: func(i int) (nvml.Device, nvml.Return) {
			if devices[i] == nil {
				return nil, nvml.ERROR_GPU_IS_LOST
			}

			return devices[i], nvml.SUCCESS
		},
	}}
}

func TestNVMLTellsWhatADeviceSupports(t *testing.T) {
	t.Parallel()
	full := nvmlDevice("GPU-full")
	full.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{Total: 80 << 30, Used: 3 << 30}, nvml.SUCCESS
	}
	full.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return 4, nvml.SUCCESS }
	full.GetFieldValuesFunc = func(v []nvml.FieldValue) nvml.Return {
		if v[0].FieldId != nvml.FI_DEV_GET_GPU_RECOVERY_ACTION {
			t.Errorf("asked for field %d", v[0].FieldId)
		}

		binary.NativeEndian.PutUint32(v[0].Value[:], 2)

		return nvml.SUCCESS
	}

	full.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 93, nvml.SUCCESS }
	full.GetTemperatureThresholdFunc = func(nvml.TemperatureThresholds) (uint32, nvml.Return) { return 92, nvml.SUCCESS }
	full.GetEnforcedPowerLimitFunc = func() (uint32, nvml.Return) { return 275_000, nvml.SUCCESS }
	full.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 81_500, nvml.SUCCESS }
	full.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return []nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: 2 << 30}, {Pid: 8, UsedGpuMemory: 1<<64 - 1}}, nvml.SUCCESS
	}
	full.GetGraphicsRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return []nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: 2 << 30}, {Pid: 9, UsedGpuMemory: 100 << 20}}, nvml.SUCCESS
	}
	remap := nvmlDevice("GPU-remap")
	remap.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 1, true, false, nvml.SUCCESS }
	l := nvmlLibrary(&[]nvml.EventData{}, full, nvmlDevice("GPU-bare"), remap, nil)
	got, err := l.devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	gpu := func(index int, uuid string) fleet.GPU {
		return fleet.GPU{Index: index, UUID: uuid, Model: "NVIDIA A100-SXM4-80GB", Memory: 80 << 30, Driver: "550"}
	}
	want := []device{
		{gpu: gpu(0, "GPU-full"), bus: "0000:3b:00", draw: 81.5, uncorrected: 4, recovery: "node reboot", hot: "at 92 °C",
			procs: []Process{{PID: 7, Memory: 2 << 30}, {PID: 8}}},
		{gpu: gpu(1, "GPU-bare"), bus: "0000:3b:00", draw: -1, uncorrected: -1},
		{gpu: gpu(2, "GPU-remap"), bus: "0000:3b:00", draw: -1, uncorrected: -1},
		{
			gpu: fleet.GPU{
				Index:  3,
				UUID:   "index-3",
				Driver: "550",
				Error:  "the driver cannot reach it: " + word(nvml.ERROR_GPU_IS_LOST.Error()),
			},
			draw:        -1,
			uncorrected: -1,
		},
	}

	want[0].gpu.Watts = 275
	want[2].gpu.Error = remapPending
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(device{}, Process{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	if err := l.close(); err != nil {
		t.Error(err)
	}
}

func TestNVMLTellsOfXids(t *testing.T) {
	t.Parallel()
	a, b := nvmlDevice("GPU-a"), nvmlDevice("GPU-b")
	events := []nvml.EventData{
		{Device: b, EventType: nvml.EventTypeXidCriticalError, EventData: 79},
		{Device: a, EventType: nvml.EventTypeClock, EventData: 79},
		{Device: a, EventType: nvml.EventTypeXidCriticalError, EventData: 31},
	}

	l := nvmlLibrary(&events, a, b)
	if got := l.xids(); len(got) != 0 {
		t.Errorf("before it was opened: %+v", got)
	}

	if _, err := l.devices(t.Context()); err != nil {
		t.Fatal(err)
	}

	want := []xid{{uuid: "GPU-b", code: 79}, {uuid: "GPU-a", code: 31}}
	if diff := cmp.Diff(want, l.xids(), cmp.AllowUnexported(xid{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	if len(a.RegisterEventsCalls()) != 1 || len(b.RegisterEventsCalls()) != 1 {
		t.Error("not every device was listened to once")
	}
}

func TestNVMLThatIsNotThere(t *testing.T) {
	t.Parallel()
	l := nvmlLibrary(&[]nvml.EventData{}, nvmlDevice("GPU-a"))
	lib, ok := l.lib.(*mock.Interface)
	if !ok {
		t.Fatal("not the mock")
	}

	lib.InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }

	if got, err := l.devices(t.Context()); len(got) != 0 || err != nil {
		t.Errorf("without a library: %v, %v", got, err)
	}

	lib.InitFunc = func() nvml.Return { return nvml.ERROR_UNKNOWN }

	if _, err := l.devices(t.Context()); err == nil {
		t.Error("a library that does not open is no error")
	}

	lib.InitFunc = func() nvml.Return { return nvml.SUCCESS }
	lib.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }

	if _, err := l.devices(t.Context()); err == nil || l.open {
		t.Errorf("a driver that fails: %v, open %v", err, l.open)
	}
}

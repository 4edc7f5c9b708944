package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Where NVIDIA's driver shows its GPUs.
const (
	nvidiaInfo    = "/proc/driver/nvidia/gpus/*/information"
	nvidiaDevices = "/dev/nvidia[0-9]*"
)

// OtherGPUs returns the device files of the GPUs that a program must not use: all of NVIDIA's but those with the given
// UUIDs. A program that uses GPUs without a UUID, which are not NVIDIA's, may use all. A program without capabilities
// cannot make device files, so one that cannot be opened cannot be used.
func OtherGPUs(uuids []string, uses bool) ([]string, error) {
	if uses && len(uuids) == 0 {
		return nil, nil
	}

	devices, err := filepath.Glob(nvidiaDevices)
	if err != nil || len(devices) == 0 {
		return nil, err
	}

	files, err := filepath.Glob(nvidiaInfo)
	if err != nil {
		return nil, err
	}

	minors := map[string]string{} // by UUID
	for _, name := range files {
		uuid, minor, err := readGPU(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it fell off the bus
		}
		if err != nil {
			return nil, err
		}

		minors[uuid] = minor
	}

	return others(devices, minors, uuids)
}

// others returns the devices that do not belong to one of the UUIDs.
func others(devices []string, minors map[string]string, uuids []string) ([]string, error) {
	for _, uuid := range uuids {
		minor, ok := minors[uuid]
		if !ok {
			return nil, fmt.Errorf("the device of GPU %s was not found, so access to the others cannot be closed", uuid)
		}

		devices = slices.DeleteFunc(devices, func(name string) bool { return name == "/dev/nvidia"+minor })
	}

	return devices, nil
}

// readGPU reads what the driver says about a GPU.
func readGPU(name string) (uuid, minor string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", "", err
	}

	defer func() { _ = f.Close() }()

	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		switch strings.TrimSpace(key) {
		case "GPU UUID":
			uuid = strings.TrimSpace(value)
		case "Device Minor":
			minor = strings.TrimSpace(value)
		}
	}

	if uuid == "" || minor == "" {
		return "", "", fmt.Errorf("%s does not say which device it is about", name)
	}

	return uuid, minor, nil
}

// CheckGPUs makes sure that of NVIDIA's GPUs exactly those with the given UUIDs are in a container, given its root.
func CheckGPUs(root string, uuids []string) error {
	closed, err := OtherGPUs(uuids, true)
	if err != nil {
		return err
	}

	all, err := filepath.Glob(nvidiaDevices)
	if err != nil {
		return err
	}

	inside, err := filepath.Glob(root + nvidiaDevices)
	if err != nil {
		return err
	}

	if len(all) == 0 && len(uuids) > 0 {
		return Invisible(uuids[0])
	}

	return compareGPUs(root, all, inside, closed)
}

// compareGPUs makes sure that of all devices exactly those that are not closed are in a container.
func compareGPUs(root string, all, inside, closed []string) error {
	for _, name := range all {
		mine, there := !slices.Contains(closed, name), slices.Contains(inside, root+name)

		switch {
		case mine && !there:
			return Invisible(name)
		case !mine && there:
			return fmt.Errorf("GPU %s, which belongs to another run, is visible in the container", name)
		}
	}

	return nil
}

// Invisible says that a GPU does not get into containers, and what to do about it.
func Invisible(gpu string) error {
	return fmt.Errorf("GPU %s is not visible in the container: install the NVIDIA container toolkit on the node, and for "+
		"podman or CDI write its description with nvidia-ctk cdi generate", gpu)
}

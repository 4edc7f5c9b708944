package inventory

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// address is one at which others may reach this machine.
type address struct {
	at    netip.Addr
	speed int // of its network interface in Mbit/s, 0 if unknown
}

// addresses lists those of this machine that others may reach: not those of the machine alone, nor of a single link.
func addresses(root string) ([]address, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("find own addresses: %w", err)
	}

	var list []address
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}

		own, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("find the addresses of %s: %w", i.Name, err)
		}

		for _, a := range own {
			prefix, err := netip.ParsePrefix(a.String())
			if err == nil && prefix.Addr().IsGlobalUnicast() {
				list = append(list, address{prefix.Addr().Unmap(), linkSpeed(root, i.Name)})
			}
		}
	}

	return list, nil
}

// linkSpeed returns how fast a network interface is in Mbit/s, as its driver says, and 0 if it does not.
func linkSpeed(root, name string) int {
	text, err := os.ReadFile(filepath.Join(root, "/sys/class/net", name, "speed"))
	if err != nil {
		return 0
	}

	speed, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}

	return max(speed, 0)
}

// rankAddresses orders addresses by preference: the fastest network first, and of equal ones that by which the server
// is reached. Addresses of IPv6 are left out where there are others, because not all programs know them.
func rankAddresses(list []address, standard string) []string {
	list = slices.Clone(list)

	slices.SortStableFunc(list, func(a, b address) int {
		return cmp.Or(
			cmp.Compare(b.speed, a.speed),
			compareBool(b.at.String() == standard, a.at.String() == standard),
		)
	})

	four := slices.ContainsFunc(list, func(a address) bool { return a.at.Is4() })

	var ranked []string
	for _, a := range list {
		if (a.at.Is4() || !four) && len(ranked) < job.MaxAddresses {
			ranked = append(ranked, a.at.String())
		}
	}

	if !slices.Contains(ranked, standard) { // of the machine alone, as in a yard of one machine
		ranked = append([]string{standard}, ranked[:min(len(ranked), job.MaxAddresses-1)]...)
	}

	return ranked
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}

	return -1
}

// findAddresses finds out how other nodes reach this machine: at the address that its operator declared, at that in the
// network that was declared, or at that from which it reaches the server, unless agents find a faster way.
func (m *Machine) findAddresses(ctx context.Context, inv *fleet.Inventory) (problems []error) {
	declared := m.opts.Address
	network, err := netip.ParsePrefix(declared)
	isNetwork := err == nil

	if declared != "" && !isNetwork {
		inv.Address = declared
		return nil
	}

	own, err := addresses(m.opts.Root)
	if err != nil {
		problems = append(problems, err)
	}

	if isNetwork {
		inv.Address, err = within(own, network)
		if err == nil {
			return problems
		}

		problems = append(problems, err)
	}

	inv.Address, err = addressTo(ctx, m.opts.Server)
	if err != nil {
		return append(problems, err)
	}

	inv.Addresses = rankAddresses(own, inv.Address)

	return problems
}

// within returns the address of this machine in a network that its operator declared.
func within(list []address, network netip.Prefix) (string, error) {
	for _, a := range list {
		if network.Contains(a.at) {
			return a.at.String(), nil
		}
	}

	return "", fmt.Errorf("find own address: this machine has none in %s", network)
}

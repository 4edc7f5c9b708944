package netlab

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Host is a machine on a network: an address of its own and a link that can be broken.
type Host struct {
	Name     string
	Address  string
	Backbone string // address on the second network, "" if there is none

	link      string // its end of the cable at the bridge
	namespace *os.File
}

// Do calls f on the host: sockets that f opens and processes that it starts, in its own goroutine, are there.
func (h *Host) Do(f func() error) error {
	return inNamespace(func() error {
		if err := unix.Setns(int(h.namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("go to host %s: %w", h.Name, err)
		}

		return f()
	})
}

// Unplug takes the link of the host down, as if its cable were pulled.
func (h *Host) Unplug() error { return ip("link", "set", h.link, "down") }

// Plug takes the link of the host up again.
func (h *Host) Plug() error { return ip("link", "set", h.link, "up") }

// Direction is one of the two ways through a host's link.
type Direction string

// The directions, as nftables has them.
const (
	In  Direction = "input"
	Out Direction = "output"
)

// Rule says what happens to packets that a host receives or sends.
type Rule struct {
	Direction Direction
	Match     string // which packets, in the language of nftables; empty for all
	Verdict   string // what becomes of them
}

// Drop loses all packets of one direction, silently.
func Drop(d Direction) Rule { return Rule{Direction: d, Verdict: "drop"} }

// Cut loses all packets of both directions, silently.
func Cut() []Rule { return []Rule{Drop(In), Drop(Out)} }

// CutFrom loses all packets to and from one address, silently.
func CutFrom(address string) []Rule {
	return []Rule{{In, "ip saddr " + address, "drop"}, {Out, "ip daddr " + address, "drop"}}
}

// Lose loses a share of all packets, in hundredths, at random.
func Lose(percent int) []Rule {
	match := fmt.Sprintf("numgen random mod 100 < %d", percent)

	return []Rule{{In, match, "drop"}, {Out, match, "drop"}}
}

// Reset breaks all connections to a port of the host, and refuses new ones.
func Reset(port string) []Rule {
	return []Rule{{In, "tcp dport " + port, "reject with tcp reset"}}
}

// Break replaces the rules of the host's link.
func (h *Host) Break(rules ...Rule) error {
	var text strings.Builder

	// The first line makes the table if it is missing, so that the second can always remove it.
	text.WriteString("table inet faults\ndelete table inet faults\ntable inet faults {\n")

	for _, d := range []Direction{In, Out} {
		fmt.Fprintf(&text, "chain %s {\ntype filter hook %s priority 0; policy accept;\n", d, d)

		// A host still reaches itself.
		fmt.Fprintf(&text, "meta %s \"lo\" accept\n", map[Direction]string{In: "iifname", Out: "oifname"}[d])

		for _, r := range rules {
			if r.Direction == d {
				fmt.Fprintf(&text, "%s %s\n", r.Match, r.Verdict)
			}
		}

		text.WriteString("}\n")
	}

	text.WriteString("}\n")

	err := h.Do(func() error { return command(text.String(), "nft", "-f", "-") })
	if err != nil {
		return fmt.Errorf("break the link of host %s: %w", h.Name, err)
	}

	return nil
}

// Heal makes the host's link whole again.
func (h *Host) Heal() error { return errors.Join(h.Break(), h.Plug()) }

// Connections returns the local ports of the host's TCP connections to an address and port.
func (h *Host) Connections(peer netip.AddrPort) ([]int, error) {
	var ports []int

	err := h.Do(func() error {
		table, err := os.Open("/proc/thread-self/net/tcp")
		if err != nil {
			return err
		}

		defer func() { _ = table.Close() }() // it was only read

		lines := bufio.NewScanner(table)
		for lines.Scan() {
			fields := strings.Fields(lines.Text())
			if len(fields) < 4 || fields[3] != established {
				continue
			}

			local, err := parseSocket(fields[1])
			if err != nil {
				return err
			}

			remote, err := parseSocket(fields[2])
			if err != nil {
				return err
			}

			if remote == peer {
				ports = append(ports, int(local.Port()))
			}
		}

		return lines.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("list the connections of host %s: %w", h.Name, err)
	}

	return ports, nil
}

// established is the state of an open connection in the kernel's table.
const established = "01"

// parseSocket reads an end of a connection as the kernel's table has it: the bytes of the address in reverse order and
// the port, in hexadecimal digits.
func parseSocket(text string) (netip.AddrPort, error) {
	address, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(address)
	if err != nil || len(raw) != 4 {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address of the kernel's table", text)
	}

	slices.Reverse(raw)

	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address of the kernel's table: %w", text, err)
	}

	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(raw)), uint16(number)), nil
}

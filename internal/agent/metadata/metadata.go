// Package metadata keeps jobs away from the metadata service of clouds, from which every process of a machine can
// read the credentials of its instance role and the script that made it a node.
//
// It serves the step launch of a job's path: the agent calls Block for the user ids of jobs before the first of
// them starts. The block is a routing rule of the kernel for connections of these users. It needs no program such
// as nft or iptables and no firewall that somebody else may flush, outlives the agent, and leaves name resolution
// alone, which some clouds offer at the same address. Where jobs run under the agent's own user there is nothing
// to tell them by, and nothing is blocked.
package metadata

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// endpoint is where a metadata service listens.
type endpoint struct {
	addr string
	port uint16
}

// endpoints are the metadata services of the clouds.
var endpoints = []endpoint{
	{"169.254.169.254", 80},  // AWS, Azure, Google Cloud, OpenStack and others
	{"fd00:ec2::254", 80},    // AWS
	{"fd20:ce::254", 80},     // Google Cloud
	{"169.254.170.2", 80},    // credentials of tasks on AWS
	{"169.254.170.23", 80},   // credentials of pods on AWS
	{"168.63.129.16", 80},    // settings of virtual machines on Azure
	{"168.63.129.16", 32526}, // the same
	{"100.100.100.200", 80},  // Alibaba Cloud
}

// Reach is whether a user's processes can reach a metadata service.
type Reach string

// Whether they can.
const (
	Blocked Reach = "blocked"  // the kernel refuses it
	NoRoute Reach = "no route" // the machine has no way to it
	Open    Reach = "open"     // they can, if there is one
)

// users is a range of user ids, both ends included.
type users struct{ first, last uint32 }

// Block refuses connections of users with ids from first to last to metadata services. What is blocked already
// stays so.
func Block(first, last int) error {
	u := users{uint32(first), uint32(last)}

	for _, e := range endpoints {
		err := send(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, rule(e, u), nil)

		// A machine without IPv6 has no connections to refuse.
		if err == nil || errors.Is(err, unix.EEXIST) || e.family() == unix.AF_INET6 && errors.Is(err, unix.EAFNOSUPPORT) {
			continue
		}

		return fmt.Errorf("block the metadata service at %s for user ids %d to %d: %w", e.addr, first, last, err)
	}

	return nil
}

// Look returns whether processes of a user can reach the metadata services that most clouds have.
func Look(user int) (Reach, error) {
	reach := NoRoute

	for _, e := range endpoints[:2] {
		refused := false

		err := send(unix.RTM_GETROUTE, 0, route(e, uint32(user)), func(m []byte) {
			refused = refused || len(m) >= unix.SizeofRtMsg && m[rtTypeAt] == unix.RTN_PROHIBIT
		})

		switch {
		case refused || errors.Is(err, unix.EACCES):
			reach = Blocked
		case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EAFNOSUPPORT):
		case err != nil:
			return "", fmt.Errorf("ask for the route to %s: %w", e.addr, err)
		default:
			return Open, nil
		}
	}

	return reach, nil
}

func (e endpoint) family() uint8 {
	if netip.MustParseAddr(e.addr).Is4() {
		return unix.AF_INET
	}

	return unix.AF_INET6
}

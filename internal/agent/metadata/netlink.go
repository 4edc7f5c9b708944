package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// priority puts the rules before those of the main table (32766) and of most other programs, and after that of the
// machine's own addresses (0).
const priority = 100

// rtTypeAt is where a route's type is in its header.
const rtTypeAt = 7

// message is the body of a netlink request: a header, then attributes.
type message []byte

// attribute appends an attribute, padded to four bytes.
func (m message) attribute(kind uint16, value []byte) message {
	m = binary.NativeEndian.AppendUint16(m, uint16(unix.SizeofRtAttr+len(value)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = append(m, value...)

	for len(m)%4 != 0 {
		m = append(m, 0)
	}

	return m
}

func number(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// rule is the routing rule that refuses connections of users to an endpoint.
func rule(e endpoint, u users) message {
	addr := netip.MustParseAddr(e.addr)
	m := message{
		e.family(), byte(addr.BitLen()), 0, 0, // destination, all of it; no source, no type of service
		0, 0, 0, unix.FR_ACT_PROHIBIT, // no table
		0, 0, 0, 0, // no flags
	}

	ports := binary.NativeEndian.AppendUint16(nil, e.port)
	ports = binary.NativeEndian.AppendUint16(ports, e.port)

	return m.
		attribute(unix.FRA_DST, addr.AsSlice()).
		attribute(unix.FRA_PRIORITY, number(priority)).
		attribute(unix.FRA_UID_RANGE, append(number(u.first), number(u.last)...)).
		attribute(unix.FRA_IP_PROTO, []byte{unix.IPPROTO_TCP}).
		attribute(unix.FRA_DPORT_RANGE, ports).
		attribute(unix.FRA_PROTOCOL, []byte{unix.RTPROT_STATIC})
}

// route asks for the way that a connection of a user to an endpoint would take.
func route(e endpoint, user uint32) message {
	addr := netip.MustParseAddr(e.addr)
	m := message{e.family(), byte(addr.BitLen()), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

	return m.
		attribute(unix.RTA_DST, addr.AsSlice()).
		attribute(unix.RTA_UID, number(user)).
		attribute(unix.RTA_IP_PROTO, []byte{unix.IPPROTO_TCP}).
		attribute(unix.RTA_DPORT, binary.BigEndian.AppendUint16(nil, e.port))
}

// send sends a request to the kernel and waits for its answer. Messages before the last one go to answer, if it is
// given.
func send(kind, flags uint16, body message, answer func([]byte)) (err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open a netlink socket: %w", err)
	}

	defer func() { err = errors.Join(err, unix.Close(fd)) }()

	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
	m = append(m, number(1)...) // of the request
	m = append(m, number(0)...) // the kernel finds out who asks
	m = append(m, body...)

	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("ask the kernel: %w", err)
	}

	buffer := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if err != nil {
			return fmt.Errorf("wait for the kernel: %w", err)
		}

		done, err := read(buffer[:n], answer)
		if done || err != nil {
			return err
		}
	}
}

// read reads the messages of one packet. It reports whether the last one, which has the outcome, is among them.
func read(packet []byte, answer func([]byte)) (done bool, err error) {
	for len(packet) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(packet))
		kind := binary.NativeEndian.Uint16(packet[4:])
		if size < unix.SizeofNlMsghdr || size > len(packet) {
			return false, errors.New("the kernel's answer is cut off")
		}

		body := packet[unix.SizeofNlMsghdr:size]

		switch {
		case kind != unix.NLMSG_ERROR:
			if answer != nil {
				answer(body)
			}
		case len(body) < 4:
			return false, errors.New("the kernel's answer is cut off")
		default:
			if code := int32(binary.NativeEndian.Uint32(body)); code != 0 {
				return true, unix.Errno(-code)
			}

			return true, nil
		}

		packet = packet[min((size+3)&^3, len(packet)):]
	}

	return false, nil
}

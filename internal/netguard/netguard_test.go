package netguard

import (
	"net"
	"net/netip"
	"testing"
)

func TestAddressesThatAreRefused(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]struct{ machine, internal bool }{
		"127.0.0.1":              {true, true},
		"::1":                    {true, true},
		"::ffff:127.0.0.1":       {true, true},
		"64:ff9b::7f00:1":        {true, true},
		"169.254.169.254":        {true, true},
		"::ffff:169.254.169.254": {true, true},
		"fe80::1%eth0":           {true, true},
		"fd00:ec2::254":          {true, true},
		"100.100.100.200":        {true, true},
		"0.0.0.0":                {true, true},
		"224.0.0.1":              {true, true},
		"10.1.2.3":               {false, true},
		"192.168.1.1":            {false, true},
		"172.16.0.1":             {false, true},
		"100.64.3.4":             {false, true},
		"fd12:3456::1":           {false, true},
		"93.184.216.34":          {false, false},
		"2606:2800:220:1::1":     {false, false},
	} {
		addr := netip.MustParseAddr(text)
		if MachineOnly(addr) != want.machine || Internal(addr) != want.internal {
			t.Errorf("%s: for the machine alone %v, internal %v; want %v", text, MachineOnly(addr), Internal(addr), want)
		}
	}
}

// TestTheAddressIsCheckedAfterTheNameWasResolved dials a name that resolves to loopback: the name itself says nothing.
func TestTheAddressIsCheckedAfterTheNameWasResolved(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = l.Close() }()

	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	for _, allow := range [][]string{nil, {"other.example.org"}, {"10.0.0.0/8"}, {"localhost:1"}} {
		_, err := New(Internal, allow).Dial(t.Context(), "tcp4", "localhost:"+port)
		if r, ok := RefusalOf(err); !ok || !r.Addr.IsLoopback() {
			t.Errorf("with %v allowed: %v, want a refusal of loopback", allow, err)
		}
	}

	for _, allow := range []string{"LOCALHOST", "localhost:" + port, "127.0.0.0/8"} {
		conn, err := New(Internal, []string{allow}).Dial(t.Context(), "tcp4", "localhost:"+port)
		if err != nil {
			t.Errorf("with %s allowed: %v", allow, err)
			continue
		}

		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

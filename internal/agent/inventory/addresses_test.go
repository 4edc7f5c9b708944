package inventory

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func own(text string, speed int) address { return address{netip.MustParseAddr(text), speed} }

func TestAddressesInOrderOfPreference(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name     string
		own      []address
		standard string
		want     []string
	}{
		{
			"the fastest network first",
			[]address{own("10.0.0.5", 1000), own("192.168.7.5", 100000)}, "10.0.0.5", []string{"192.168.7.5", "10.0.0.5"},
		},
		{
			"of equal ones that to the server",
			[]address{own("172.17.0.1", 10000), own("10.0.0.5", 10000), own("10.1.0.5", 0)}, "10.0.0.5",
			[]string{"10.0.0.5", "172.17.0.1", "10.1.0.5"},
		},
		{
			"IPv6 only without IPv4",
			[]address{own("2001:db8::5", 100000), own("10.0.0.5", 1000)}, "10.0.0.5", []string{"10.0.0.5"},
		},
		{"IPv6 alone", []address{own("2001:db8::5", 1000)}, "2001:db8::5", []string{"2001:db8::5"}},
		{"a yard of one machine", []address{own("10.0.0.5", 1000)}, "127.0.0.1", []string{"127.0.0.1", "10.0.0.5"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			if diff := cmp.Diff(c.want, rankAddresses(c.own, c.standard)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDeclaredNetwork(t *testing.T) {
	t.Parallel()
	list := []address{own("10.0.0.5", 1000), own("192.168.7.5", 100000)}

	if got, err := within(list, netip.MustParsePrefix("192.168.0.0/16")); err != nil || got != "192.168.7.5" {
		t.Errorf("got %q, %v", got, err)
	}

	if _, err := within(list, netip.MustParsePrefix("172.16.0.0/12")); err == nil {
		t.Error("an address was found in a network in which the machine has none")
	}
}

package main

import (
	"net"
	"strings"
	"testing"
)

// With --hosts yard.example.org the login line said 127.0.0.1, which is of no use elsewhere (newcomer 18).
func TestTheLoginLineWorksOnOtherMachines(t *testing.T) {
	t.Parallel()

	listens := &net.TCPAddr{IP: net.IPv4zero, Port: 7443}

	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"a host name":           {[]string{"--hosts", "yard.example.org,10.0.0.7"}, "https://yard.example.org:7443"},
		"an address of its own": {[]string{"--advertise", "https://lb.example.org:443"}, "https://lb.example.org:443"},
		"this machine only":     {nil, "https://127.0.0.1:7443"},
	} {
		c, err := read(t, nil, tt.args...)
		if err != nil {
			t.Fatal(err)
		}

		text := firstLogin("5f0c", advertised(c, listens), "/data/bootstrap-token")
		if !strings.Contains(text, "trainyard login "+tt.want+" --token-file /data/bootstrap-token\n") ||
			!strings.Contains(text, "CA 5f0c\n") {
			t.Errorf("%s: it says %q", name, text)
		}
	}
}

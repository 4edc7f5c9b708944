package cloud

import (
	_ "embed" // the scripts
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/fault"
)

//go:embed userdata.sh
var bootScript string

//go:embed switch.sh
var switchScript string

var sha256Hex = regexp.MustCompile(`^[0-9a-f]{64}$`)

// UserData returns the script that makes a new machine a node of the yard, for cloud-init
// or whatever else runs a script as root at the first boot. First of all it arms a dead man's
// switch, which ends the machine when its lease is over even if nothing after it works.
// Then it gets the agent's program, unless the image has it, checks its digest,
// and runs it as a service that joins the yard. The agent extends the lease by rewriting
// DeadlineFile; see Deadline. asked is when the lease was written, by the clock by which
// r.Until was chosen: the same request gives the same script, however often it is made.
//
// The script holds the join token, so it is as secret as that: it lets one machine join, once.
func UserData(r Request, asked time.Time) (string, error) {
	if err := checkBoot(r.Boot); err != nil {
		return "", err
	}

	settings := map[string]string{"token": r.Boot.Token, "on_lease_end": "shutdown -P now"}
	if r.Name != "" {
		settings["name"] = r.Name
	}

	if r.Offer.Spot && r.Boot.SpotNotice != "" {
		settings["spot_notice"] = r.Boot.SpotNotice
	}

	if r.Boot.DataRoots != "" {
		settings["data_roots"] = r.Boot.DataRoots
	}

	text, err := json.Marshal(settings) // which is YAML too, as the agent reads it
	if err != nil {
		return "", fmt.Errorf("write the settings of the agent: %w", err)
	}

	seconds := func(d time.Duration) string { return strconv.FormatInt(max(int64(d/time.Second), 0), 10) }
	var s strings.Builder
	s.WriteString("#!/bin/sh\n# Makes this machine a node of a yard.\n")

	for _, v := range []struct{ name, value string }{
		{"root", ""}, // in front of every path that is written; for tests
		{"lease", string(r.Lease)},
		{"lease_until", strconv.FormatInt(r.Until.Unix(), 10)},
		{"lease_left", seconds(r.Until.Sub(asked))},
		{"lease_slack", seconds(Slack)},
		{"server", r.Boot.Server},
		{"agent_url", r.Boot.AgentURL},
		{"agent_hash", r.Boot.AgentHash},
		{"settings", string(text)},
		{"switch", switchScript},
	} {
		s.WriteString(v.name + "=" + quote(v.value) + "\n")
	}

	s.WriteString(bootScript)

	return s.String(), nil
}

// checkBoot refuses what would make a machine that costs money and never becomes a node.
func checkBoot(b Boot) error {
	bad := func(field, format string, args ...any) error {
		return fault.New(fault.Invalid, "bad_boot", format, args...).WithField(field)
	}
	switch {
	case b.Server == "" || b.Token == "":
		return bad("boot", "the boot script needs the server address and a join token")
	case b.AgentURL != "" && b.AgentHash == "":
		return bad("boot.agent_hash", "sha256 is required for a program that is downloaded")
	case b.AgentHash != "" && !sha256Hex.MatchString(b.AgentHash):
		return bad("boot.agent_hash", "sha256 must be 64 lower-case hexadecimal digits, got %.80q", b.AgentHash)
	case strings.ContainsRune(b.Server+b.Token+b.AgentURL, 0):
		return bad("boot", "the boot script must not contain NUL bytes")
	}

	return nil
}

// quote writes a text as one word of a shell, whatever is in it.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

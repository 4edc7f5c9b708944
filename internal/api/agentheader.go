package api

import (
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
)

// AgentHeader is the header with which every request of an agent says which process of which machine sends it, so
// that a copy of a node's data directory is not taken for the node. Agents of capability 5 and less send none.
const AgentHeader = "Trainyard-Agent"

// maxAgentField bounds each part of the header.
const maxAgentField = 256

// FormatAgent writes the header of an agent.
func FormatAgent(a *fleet.Agent) string {
	return url.Values{
		"process": {a.Process}, "machine": {a.Machine}, "boot": {a.Boot}, "folder": {a.Folder},
		"started": {strconv.FormatInt(int64(a.Started), 10)}, "host": {fit(a.Host)}, "path": {fit(a.Path)},
	}.Encode()
}

// fit makes a name printable and short enough: it is for people, and must not keep the agent from being admitted.
func fit(s string) string {
	s = strings.Map(func(r rune) rune {
		if unprintable(r) {
			return '?'
		}

		return r
	}, s)

	return strings.ToValidUTF8(s[:min(len(s), maxAgentField)], "")
}

// ParseAgent reads the header of an agent; it returns nil if there is none. Parts that a newer agent adds are ignored.
func ParseAgent(header string) (*fleet.Agent, error) {
	if header == "" {
		return nil, nil //nolint:nilnil // an agent of an earlier version
	}

	refuse := func(why string) (*fleet.Agent, error) {
		return nil, fault.New(fault.Invalid, "bad_agent_header", "the header %s %s", AgentHeader, why)
	}

	values, err := url.ParseQuery(header)
	if err != nil {
		return refuse("must be a URL query")
	}

	for _, list := range values {
		if len(list) > 1 || len(list[0]) > maxAgentField || strings.ContainsFunc(list[0], unprintable) {
			return refuse("has a part that is given twice, too long or not printable")
		}
	}

	started, err := strconv.ParseInt(values.Get("started"), 10, 64)
	if err != nil || values.Get("process") == "" {
		return refuse("must name the process and when it started")
	}

	return &fleet.Agent{
		Process: values.Get("process"),
		Machine: values.Get("machine"),
		Boot:    values.Get("boot"),
		Folder:  values.Get("folder"),
		Started: time.Duration(started),
		Host:    values.Get("host"),
		Path:    values.Get("path"),
	}, nil
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"trainyard/internal/tenant"
)

// priorityCaps reads the highest priority of each role.
func priorityCaps(c *config, text string) error {
	c.caps = tenant.Caps{Role: map[tenant.Role]int{}}

	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}

		name, number, _ := strings.Cut(part, "=")
		highest, err := strconv.Atoi(number)
		if err != nil || highest < 0 || highest > 100 {
			return fmt.Errorf("must be ROLE=PRIORITY with priorities from 0 to 100, got %q", part)
		}

		switch role := tenant.Role(name); {
		case name == "lead":
			c.caps.Lead = highest
		case slices.Contains(tenant.Roles(), role):
			c.caps.Role[role] = highest
		default:
			return fmt.Errorf("unknown role %q; use lead or one of %v", name, tenant.Roles())
		}
	}

	return nil
}

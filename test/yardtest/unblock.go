package yardtest

import (
	"context"
	"os/exec"
)

// Unblock removes the routing rules by which an agent keeps jobs with these user ids ("310000-310099") away from
// the metadata service of clouds. They outlive the agent.
func Unblock(uids string) {
	for _, family := range []string{"-4", "-6"} {
		for exec.CommandContext(context.Background(), "ip", family, "rule", "del", "uidrange", uids).Run() == nil {
		}
	}
}

package main

import (
	"strconv"
	"strings"

	"trainyard/internal/diskspace"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// labelsSetting says what jobs can ask for of a machine.
var labelsSetting = setting{
	"labels",
	"",
	"labels of this machine that jobs can ask for, e.g. ssd,zone=a",
	func(c *config, v string) error {
		c.labels = nil

		for l := range strings.SplitSeq(v, ",") {
			if l = strings.TrimSpace(l); l != "" {
				c.labels = append(c.labels, l)
			}
		}

		return fleet.CheckLabels(c.labels)
	},
}

// minFreeSetting says when the disk of a node is too full for new jobs.
var minFreeSetting = setting{
	"min-free-disk",
	"2GB,1%",
	"take no new jobs while the disk with the data directory has less than this free: a size, a share of the disk, or " +
		"both, of which the larger counts; datasets and kept working directories leave twice this free; 0B for no limit",
	minFreeDisk,
}

// minFreeDisk reads how much of a disk must be free: a size, a percentage, or both.
func minFreeDisk(c *config, text string) error {
	c.minFree = diskspace.Floor{}

	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)

		percent, isShare := strings.CutSuffix(part, "%")
		if !isShare {
			size, err := job.ParseBytes(part)
			if err != nil {
				return err
			}

			c.minFree.Size = max(c.minFree.Size, size)

			continue
		}

		share, err := strconv.ParseFloat(percent, 64)
		if err != nil || !(share >= 0 && share < 100) {
			return fault.New(fault.Invalid, "min_free_disk_invalid",
				"min-free-disk must be a size and a percentage below 100, such as 2GB,1%%, got %.40q", text)
		}

		c.minFree.Share = max(c.minFree.Share, share/100)
	}

	return nil
}

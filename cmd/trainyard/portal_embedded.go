//go:build portal

package main

import (
	"embed"
	"io/fs"
)

// portalFiles are the built pages of the portal. `make build` and releases put them there.
//
//go:embed all:portal
var portalFiles embed.FS

// embeddedPortal returns the built pages.
func embeddedPortal() (fs.FS, error) { return fs.Sub(portalFiles, "portal") }

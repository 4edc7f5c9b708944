package api

import (
	"context"

	"trainyard/internal/id"
)

// JobFile is a job as a job file, to be submitted again.
type JobFile struct {
	File    string   `json:"file" doc:"job file (YAML)"`
	Workdir string   `json:"workdir,omitempty" doc:"digest of the manifest of its working directory, as submit takes it; absent if it has none, or if its files are not stored for the caller"`
	Notes   []string `json:"notes,omitempty" doc:"what is left out of it, and why"`
}

// Template is a job file to start from.
type Template struct {
	Name  string `json:"name"`
	Title string `json:"title" doc:"what it is for"`
	File  string `json:"file" doc:"job file (YAML) with comments"`
}

// TemplateList lists templates, the simplest first.
type TemplateList struct {
	Templates []Template `json:"templates"`
}

// JobFile returns the file with which a job can be submitted again.
func (c *Client) JobFile(ctx context.Context, j id.Job) (JobFile, error) {
	return get[JobFile](ctx, c, at("jobs", string(j), "file"), nil)
}

// Templates returns job files to start from.
func (c *Client) Templates(ctx context.Context) (TemplateList, error) {
	return get[TemplateList](ctx, c, at("templates"), nil)
}

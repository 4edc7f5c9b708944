package api

// Problem is an error as the API answers it (application/problem+json).
type Problem struct {
	Type   string    `json:"type,omitempty"`
	Title  string    `json:"title"`
	Status int       `json:"status"`
	Detail string    `json:"detail" doc:"the error in one sentence"`
	Code   string    `json:"code" doc:"stable, machine-readable error code"`
	Kind   string    `json:"kind"`
	Field  string    `json:"field,omitempty"`
	Line   int       `json:"line,omitempty"`
	Column int       `json:"column,omitempty"`
	Remedy string    `json:"remedy,omitempty"`
	Errors []Problem `json:"errors,omitempty" doc:"all errors, if there is more than one"`
}

// Error is the sentence for people.
func (p *Problem) Error() string { return p.Detail }

// GetStatus is the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is that of all error answers.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

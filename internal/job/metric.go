package job

// MetricRule is a source of a program's metrics beside those that are detected automatically.
// Exactly one of its fields is set.
type MetricRule struct {
	// Match is a regular expression for lines of output. Its groups (?P<step>…), total, epoch and epochs
	// report progress; every other named group is a metric.
	Match string `json:"match,omitempty"`
	// File is a pattern of files inside the working directory that hold metrics: TensorBoard, CSV, JSON lines.
	File string `json:"file,omitempty"`
	// MLflow points the program's MLflow client at the yard.
	MLflow bool `json:"mlflow,omitempty"`
}

package asynqtrace

import semconv "go.opentelemetry.io/otel/semconv/v1.40.0"

// The attributes are those of OpenTelemetry's semantic conventions for messaging, which are not
// stable, and two for asynq.
const (
	attrTaskType = "asynq.task.type"
	attrRetried  = "asynq.task.retried"

	process = "process"

	errorPanic = "panic"
)

var (
	system        = semconv.MessagingSystemKey.String("asynq")
	operationName = semconv.MessagingOperationName(process)
	operationType = semconv.MessagingOperationTypeProcess
)

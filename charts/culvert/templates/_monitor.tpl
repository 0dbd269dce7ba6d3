{{/* A ServiceMonitor or a PodMonitor: they differ in two words. */}}
{{- define "culvert.monitor" }}
{{- $isPod := eq .kind "PodMonitor" }}
apiVersion: monitoring.coreos.com/v1
kind: {{ .kind }}
metadata:
  name: {{ include "culvert.fullname" .root | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "culvert.labels" .root | nindent 4 }}
    {{- with .values.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .values.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  namespaceSelector:
    matchNames: [{{ .root.Release.Namespace | quote }}]
  selector:
    matchLabels:
      {{- include "culvert.selectorLabels" .root | nindent 6 }}
      {{- if not $isPod }}
      app.kubernetes.io/part-of: metrics
      {{- end }}
  {{ ternary "podMetricsEndpoints" "endpoints" $isPod }}:
    - port: metrics
      path: /metrics
      interval: {{ .values.interval }}
      scrapeTimeout: {{ .values.scrapeTimeout }}
      relabelings:
        # One name, whichever monitor it is: rules and dashboard select by it.
        - targetLabel: job
          replacement: {{ include "culvert.job" .root | quote }}
        - sourceLabels: [__meta_kubernetes_pod_node_name]
          targetLabel: node
        {{- with .values.relabelings }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .values.metricRelabelings }}
      metricRelabelings:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}

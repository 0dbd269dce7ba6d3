//! How the kernel chooses this process when memory runs out.

use std::fs;

/// Sets the score, -1000 (never) to 1000 (first). To be chosen less often than before needs
/// `CAP_SYS_RESOURCE`; the agent serves without it, so a failure is only told.
pub fn set_score(score: i32) {
    if let Err(error) = fs::write("/proc/self/oom_score_adj", score.to_string()) {
        tracing::info!(
            score,
            %error,
            "writing /proc/self/oom_score_adj failed: a lower score takes CAP_SYS_RESOURCE; \
             kubelet gives pods of the priority class system-node-critical a low one"
        );
    }
}

# Ridgebeam's web app: slim, without torch, not as root. docs/hosting.md says how to run it.
# Python 3.11 is what constraints.txt was resolved on and what every test runs on.
FROM python:3.11-slim-bookworm

# Machine code for any processor of the kind: an image is built on one and runs on another. Without the browser's address
# the server asks a host of the internet for its own as it starts.
ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore \
    NUMBA_CPU_NAME=generic \
    RIDGEBEAM_SHARED=1 \
    STREAMLIT_SERVER_ADDRESS=0.0.0.0 \
    STREAMLIT_SERVER_PORT=8501 \
    STREAMLIT_SERVER_HEADLESS=true \
    STREAMLIT_BROWSER_SERVER_ADDRESS=localhost \
    STREAMLIT_SERVER_ALLOWED_HOSTS=*

RUN useradd --create-home --uid 1000 ridgebeam
WORKDIR /app

# Dependencies first: they change less often than the code. Their own tests are a tenth of the image.
COPY pyproject.toml constraints.txt README.md LICENSE cli.py ./
RUN python -m pip install -c constraints.txt -e . \
    && find "$(python -c "import sysconfig; print(sysconfig.get_path('purelib'))")" \
    -type d -name tests -prune -exec rm -r {} +

# Root owns the code and what is compiled from it: what runs can change neither, and needs no folder that it can write.
COPY . .
RUN python -m compileall -q . && python -m calc.simulation.warm
USER ridgebeam

EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4)"]
CMD ["python", "-m", "streamlit", "run", "app.py"]
